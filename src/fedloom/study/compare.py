"""Several methods, several seeds: one run folder a cell, so that a comparison that was stopped goes on where it was."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedloom.core.errors import UserError
from fedloom.methods.registry import parse
from fedloom.study.assemble import check_words
from fedloom.study.config import DEFAULTS, Config, load
from fedloom.study.folder import CONFIG, RunFolder
from fedloom.study.parts import device_of, resolved
from fedloom.study.raw import overlay

Line = dict[str, Any]
LAST = 5  # evaluations that are averaged for the accuracy of a run


@dataclass(frozen=True)
class Cell:
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
    """A method over its seeds.

    accuracies: one a seed, mean of the last evaluations. curve: mean accuracy by round. to_target: mean of the first rounds that
    reach the target, None if a seed never got there.
    """

    method: str
    accuracies: tuple[float, ...]
    curve: tuple[tuple[int, float], ...]
    to_target: float | None
    bytes: int
    seconds: float

    @property
    def mean(self) -> float:
        return statistics.fmean(self.accuracies)

    @property
    def std(self) -> float:
        """Sample standard deviation; 0 for one seed."""
        return statistics.stdev(self.accuracies) if len(self.accuracies) > 1 else 0.0

    def describe(self) -> Line:
        """As JSON."""
        return {
            "method": self.method,
            "accuracy": self.mean,
            "std": self.std,
            "accuracies": list(self.accuracies),
            "rounds_to_target": self.to_target,
            "bytes": self.bytes,
            "seconds": self.seconds,
        }


def plan(raw: Mapping[str, Any], methods: Sequence[str], seeds: Sequence[int], out: Path) -> list[Cell]:
    """The cells of a comparison, every one checked before the first begins."""
    if not methods:
        raise UserError("--methods names no method; write for example --methods fedavg,fedprox (see: fedloom methods)")
    if len({repr(parse(m)) for m in methods}) < len(methods):
        raise UserError(f"--methods {','.join(methods)} names a method twice; name each once")
    return [
        cell
        for method in methods
        for cell in seeded(method, overlay(raw, [("method", method)], DEFAULTS), seeds, out / folder_name(method))
    ]


def seeded(method: str, raw: Mapping[str, Any], seeds: Sequence[int], folder: Path, column: str = "") -> list[Cell]:
    """One cell a seed, checked."""
    configs = [load(overlay(raw, [("seed", seed)], DEFAULTS)) for seed in seeds]
    check_words(configs[0])
    cells = [Cell(method, c.seed, folder / f"seed-{c.seed}", resolved(c), column) for c in configs]
    for cell in cells:
        _check_cell(cell)
    return cells


def _check_cell(cell: Cell) -> None:
    """A run that is there must have the settings of its cell, finished or not."""
    if (cell.path / CONFIG).exists() and RunFolder.read_only(cell.path).config_text != cell.config.text():
        raise UserError(f"'{cell.path}' holds a run with other settings; choose another --out, or delete that folder")


def folder_name(method: str) -> str:
    """A method as the name of a folder."""
    return "".join(c if c.isalnum() or c in "-+=.," else "_" for c in method)


def open_cell(cell: Cell) -> RunFolder:
    """The folder of a cell: new, or the one that is there."""
    device = device_of(cell.config.device)
    if not (cell.path / CONFIG).exists():
        return RunFolder.create(cell.path, cell.config.text(), device)
    return RunFolder.open(cell.path, device)


def rows(cells: Sequence[Cell], target: float | None) -> tuple[list[Row], float]:
    """The table, and the target used: the given one, or the first method's mean accuracy."""
    curves = {cell.path: dict(curve(cell.path)) for cell in cells}
    methods = list(dict.fromkeys(cell.method for cell in cells))
    by_method = {m: [c for c in cells if c.method == m] for m in methods}
    first = statistics.fmean(settled(curves[c.path]) for c in by_method[methods[0]])
    goal = first if target is None else target
    return [_row(m, by_method[m], [curves[c.path] for c in by_method[m]], goal) for m in methods], goal


def settled(by_round: Mapping[int, float]) -> float:
    """Accuracy at the end of a run: on skewed clients it swings from round to round, so the last few are averaged."""
    return statistics.fmean(by_round[r] for r in sorted(by_round)[-LAST:])


def _row(method: str, cells: Sequence[Cell], curves: Sequence[Mapping[int, float]], goal: float) -> Row:
    results = [RunFolder.read_only(cell.path).result() or {} for cell in cells]
    shared = sorted(set.intersection(*(set(c) for c in curves)))
    reached = [next((r for r in sorted(c) if c[r] >= goal), None) for c in curves]
    return Row(
        method=method,
        accuracies=tuple(settled(c) for c in curves),
        curve=tuple((r, statistics.fmean(c[r] for c in curves)) for r in shared),
        to_target=None if None in reached else statistics.fmean(r for r in reached if r is not None),
        bytes=round(statistics.fmean(r["bytes_up"] + r["bytes_down"] for r in results)),
        seconds=statistics.fmean(r["seconds"] for r in results),
    )


def curve(path: Path) -> Iterator[tuple[int, float]]:
    """Accuracy by round of one run."""
    for line in RunFolder.read_only(path).metrics():
        if "accuracy" in line:
            yield line["round"], line["accuracy"]


def unfinished(cells: Sequence[Cell]) -> list[Cell]:
    """The cells that are not done yet."""
    return [c for c in cells if not (c.path / CONFIG).exists() or RunFolder.read_only(c.path).result() is None]
