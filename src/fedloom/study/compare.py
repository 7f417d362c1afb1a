"""Several methods, several seeds: one run folder a cell, so that a comparison that was stopped goes on where it was."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedloom.core.errors import UserError
from fedloom.study.assemble import check_words
from fedloom.study.config import DEFAULTS, Config, load
from fedloom.study.folder import RunFolder
from fedloom.study.raw import overlay

Line = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """One run of a comparison."""

    method: str
    seed: int
    path: Path
    config: Config


@dataclass(frozen=True)
class Row:
    """A method over its seeds. curve: mean accuracy by round. to_target: mean rounds, None if a seed never got there."""

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
    if len(set(methods)) < len(methods):
        raise UserError(f"--methods {','.join(methods)} names a method twice; name each once")
    cells = []
    for method in methods:
        for seed in seeds:
            config = load(overlay(raw, [("method", method), ("seed", seed)], DEFAULTS))
            cells.append(Cell(method, seed, out / _folder_name(method) / f"seed-{seed}", config))
        check_words(config)
    return cells


def _folder_name(method: str) -> str:
    return "".join(c if c.isalnum() or c in "-+=.," else "_" for c in method)


def open_cell(cell: Cell) -> RunFolder:
    """The folder of a cell: new, or the one that is there if its settings are the same."""
    if not (cell.path / "config.toml").exists():
        return RunFolder.create(cell.path, cell.config.text())
    folder = RunFolder.open(cell.path)
    if folder.config_text != cell.config.text():
        raise UserError(f"'{cell.path}' holds a run with other settings; choose another --out, or delete that folder")
    return folder


def rows(cells: Sequence[Cell], target: float | None) -> tuple[list[Row], float]:
    """The table, and the target used: the given one, or the first method's mean final accuracy."""
    results = {cell: RunFolder.read_only(cell.path).result() or {} for cell in cells}
    methods = list(dict.fromkeys(cell.method for cell in cells))
    by_method = {m: [c for c in cells if c.method == m] for m in methods}
    first = statistics.fmean(results[c]["accuracy"] for c in by_method[methods[0]])
    goal = first if target is None else target
    return [_row(m, by_method[m], results, goal) for m in methods], goal


def _row(method: str, cells: Sequence[Cell], results: Mapping[Cell, Line], goal: float) -> Row:
    curves = [dict(curve(cell.path)) for cell in cells]
    shared = sorted(set.intersection(*(set(c) for c in curves)))
    reached = [next((r for r in sorted(c) if c[r] >= goal), None) for c in curves]
    return Row(
        method=method,
        accuracies=tuple(results[c]["accuracy"] for c in cells),
        curve=tuple((r, statistics.fmean(c[r] for c in curves)) for r in shared),
        to_target=None if None in reached else statistics.fmean(r for r in reached if r is not None),
        bytes=round(statistics.fmean(results[c]["bytes_up"] + results[c]["bytes_down"] for c in cells)),
        seconds=statistics.fmean(results[c]["seconds"] for c in cells),
    )


def curve(path: Path) -> Iterator[tuple[int, float]]:
    """Accuracy by round of one run."""
    for line in RunFolder.read_only(path).metrics():
        if "accuracy" in line:
            yield line["round"], line["accuracy"]


Execute = Callable[[Cell], None]


def unfinished(cells: Sequence[Cell]) -> list[Cell]:
    """The cells that are not done yet."""
    return [c for c in cells if not (c.path / "config.toml").exists() or RunFolder.read_only(c.path).result() is None]
