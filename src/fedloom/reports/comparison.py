"""Several methods, several seeds: one run folder a cell, so that a comparison that was stopped goes on where it was."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedloom.core.errors import UserError, raise_all
from fedloom.core.spec import parse
from fedloom.experiment.build import check_names
from fedloom.experiment.parts import resolve_auto, resolve_device
from fedloom.metrics.curve import Curve, CurveOptions, evaluations, mean_of_all
from fedloom.metrics.records import SPREAD, Own
from fedloom.reports.client_scores import own, personal
from fedloom.runs.folder import CONFIG, RunFolder
from fedloom.settings.config import DEFAULTS, Config, load
from fedloom.settings.overrides import overlay

Line = dict[str, Any]


@dataclass(frozen=True)
class PlannedRun:
    """One run of a comparison; in a table, of a row and a column."""

    method: str
    seed: int
    path: Path
    config: Config
    column: str = ""

    @property
    def title(self) -> str:
        return " ".join(filter(None, (self.method, self.column, f"seed {self.seed}")))


@dataclass(frozen=True)
class Row:
    """A method over its seeds, or a run by itself.

    accuracies: one a seed, at the end. curve, line: mean accuracy by round, as it is and as it is read. at, reached: for each
    round and each target of the reading one value a seed, None where a target was not reached. rounds: all that were played.
    personal: whether clients have models of their own. own: what they end with, by seed; empty where that is not known of all.
    """

    name: str
    reading: CurveOptions
    accuracies: tuple[float, ...]
    curve: tuple[tuple[int, float], ...]
    line: tuple[tuple[int, float], ...]
    at: tuple[tuple[float, ...], ...]
    reached: tuple[tuple[int | None, ...], ...]
    rounds: int
    bytes: int
    seconds: float
    personal: bool = False
    own: tuple[Own, ...] = ()

    @property
    def mean(self) -> float:
        return statistics.fmean(self.accuracies)

    @property
    def std(self) -> float:
        """Sample standard deviation; 0 for one seed."""
        return statistics.stdev(self.accuracies) if len(self.accuracies) > 1 else 0.0

    def over_clients(self, score: str, of: str = "mean") -> float | None:
        """Of the models that the clients end with, the mean over seeds; None where it is not known."""
        return statistics.fmean(o[score][of] for o in self.own) if self.own else None

    def describe(self, kind: str) -> Line:
        """As JSON; kind: what the name is one of."""
        at = zip(self.reading.at, self.at, strict=True)
        to = zip(self.reading.targets, self.reached, strict=True)
        return {
            kind: self.name,
            "accuracy": self.mean,
            "std": self.std,
            "accuracies": list(self.accuracies),
            "rounds": self.rounds,
            "at": [
                {"round": r, "accuracy": statistics.fmean(each), "each": list(each)}
                for r, each in at
            ],
            "to_target": [
                {"target": t, "rounds": mean_of_all(each), "each": list(each)} for t, each in to
            ],
            "bytes": self.bytes,
            "seconds": self.seconds,
            "personal": self.personal,
            "clients": {
                s: {o: self.over_clients(s, o) for o in SPREAD} for s in ("recall", "weighted")
            }
            if self.own
            else None,
        }


def plan(raw: Mapping[str, Any], methods: Sequence[str], seeds: int, out: Path) -> list[PlannedRun]:
    """The cells of a comparison, every one checked before the first begins."""
    if not methods:
        raise UserError(
            "--methods names no method; write for example --methods fedavg,fedprox (see: fedloom methods)"
        )
    if len({repr(parse(m)) for m in methods}) < len(methods):
        raise UserError(f"--methods {','.join(methods)} names a method twice; name each once")
    return [
        cell
        for method in methods
        for cell in plan_seeds(
            method, overlay(raw, [("method", method)], DEFAULTS), seeds, out / folder_name(method)
        )
    ]


def plan_seeds(
    method: str, raw: Mapping[str, Any], seeds: int, folder: Path, column: str = ""
) -> list[PlannedRun]:
    """One cell a seed, checked; so many seeds, counted from that of the settings."""
    first = load(raw)
    check_names(first)
    configs = [load(overlay(raw, [("seed", first.seed + more)], DEFAULTS)) for more in range(seeds)]
    cells = [
        PlannedRun(method, c.seed, folder / f"seed-{c.seed}", resolve_auto(c), column)
        for c in configs
    ]
    for cell in cells:
        _check_cell(cell)
    return cells


def _check_cell(cell: PlannedRun) -> None:
    """A run that is there must have the settings of its cell and the user's code as it is now, finished or not."""
    if not (cell.path / CONFIG).exists():
        return
    with RunFolder.read_only(cell.path) as run:
        if run.config_text != cell.config.text():
            raise UserError(
                f"'{cell.path}' holds a run with other settings; choose another --out, or delete that folder"
            )
        for place in run.edited(cell.config.code()):
            was = f"'{cell.path}' holds a run of '{place}' as it was before it was edited"
            raise UserError(f"{was}; choose another --out, or delete that folder")


def folder_name(method: str) -> str:
    """A method as the name of a folder."""
    return "".join(c if c.isalnum() or c in "-+=.," else "_" for c in method)


def open_planned(cell: PlannedRun) -> RunFolder:
    """The folder of a cell: new, or the one that is there."""
    device = resolve_device(cell.config.device)
    if not (cell.path / CONFIG).exists():
        return RunFolder.create(cell.path, cell.config.text(), device)
    return RunFolder.open(cell.path, device)


def check_reading(cells: Sequence[PlannedRun], reading: CurveOptions) -> None:
    """Refuse, before the first run begins, rounds that could not be read off its end."""
    for config in (cell.config for cell in cells):
        reading.at_rounds(dict.fromkeys(evaluations(config.rounds, config.evaluate.every), 0.0))


def by_method(cells: Sequence[PlannedRun]) -> dict[str, list[Path]]:
    """The runs of each method."""
    return {
        method: [c.path for c in cells if c.method == method]
        for method in dict.fromkeys(c.method for c in cells)
    }


def rows(runs: Mapping[str, Sequence[Path]], reading: CurveOptions) -> list[Row]:
    """What runs have come to, a row a name; without a target it is the accuracy of the first row."""
    lines = {
        name: [RunFolder.read_only(path).metrics() for path in paths]
        for name, paths in runs.items()
    }
    if not reading.targets:
        first = next(iter(lines.values()))
        reading = replace(
            reading, targets=(statistics.fmean(reading.accuracy(accuracies(ls)) for ls in first),)
        )
    return [_row(name, every, reading, runs[name]) for name, every in lines.items()]


def _row(
    name: str, runs: Sequence[Sequence[Line]], reading: CurveOptions, paths: Sequence[Path]
) -> Row:
    ends = [own(path) for path in paths]
    curves = [accuracies(lines) for lines in runs]
    return Row(
        name=name,
        reading=reading,
        accuracies=tuple(reading.accuracy(c) for c in curves),
        curve=_mean(curves),
        line=_mean([reading.line(c) for c in curves]),
        at=tuple(zip(*(reading.at_rounds(c) for c in curves), strict=True)),
        reached=tuple(zip(*(reading.reached(c) for c in curves), strict=True)),
        rounds=min(lines[-1]["round"] for lines in runs),
        bytes=round(statistics.fmean(_total(lines, "bytes_up", "bytes_down") for lines in runs)),
        seconds=round(
            statistics.fmean(_total(lines, "seconds", "evaluation_seconds") for lines in runs), 3
        ),
        personal=any(map(personal, paths)),
        own=() if None in ends else tuple(e for e in ends if e is not None),
    )


def _mean(curves: Sequence[Curve]) -> tuple[tuple[int, float], ...]:
    """Over the rounds that all have."""
    shared = sorted(set.intersection(*(set(c) for c in curves)))
    return tuple((r, statistics.fmean(c[r] for c in curves)) for r in shared)


def _total(lines: Sequence[Line], *names: str) -> float:
    return sum(float(line.get(name, 0)) for line in lines for name in names)


def accuracies(lines: Sequence[Line]) -> dict[int, float]:
    """Accuracy by round, where a run was evaluated."""
    return {line["round"]: line["accuracy"] for line in lines if "accuracy" in line}


def unfinished(cells: Sequence[PlannedRun]) -> list[PlannedRun]:
    """The cells that are not done yet."""
    return [
        c
        for c in cells
        if not (c.path / CONFIG).exists() or RunFolder.read_only(c.path).result() is None
    ]


def so_far(paths: Sequence[Path]) -> dict[Path, int]:
    """The rounds of the runs that are not done yet."""
    runs = {path: RunFolder.read_only(path) for path in paths}
    return {path: run.metrics()[-1]["round"] for path, run in runs.items() if run.result() is None}


def check_runs(paths: Sequence[Path], reading: CurveOptions) -> None:
    """Refuse folders that hold no run, or none that can be read so."""
    raise_all(filter(None, (_unreadable(path, reading) for path in paths)), "")


def _unreadable(path: Path, reading: CurveOptions) -> str | None:
    found = accuracies(RunFolder.read_only(path).metrics())
    if not found:
        return f"'{path}' has no evaluation yet; go on with: fedloom resume {path}"
    try:
        reading.at_rounds(found)
    except UserError as error:
        return f"'{path}': {error}"
    return None
