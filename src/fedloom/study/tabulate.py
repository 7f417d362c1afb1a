"""A table of a paper, run: one cell for each row, column and seed, and our figures beside the printed ones."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedloom.core.errors import all_at_once
from fedloom.data import crowd, store
from fedloom.study.compare import Cell, curve, folder_name, seeded
from fedloom.study.folder import RunFolder
from fedloom.study.measure import measured
from fedloom.study.presets.table import Column, Printed, Row, Scale, Settings, Table


@dataclass(frozen=True)
class Spot:
    """A place in the table: its row, its column and its runs."""

    row: Row
    column: Column
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Figure:
    """What stands in a place: ours by seed, in the paper's units, None where it was never reached; and what is printed."""

    row: str
    column: str
    ours: tuple[float | None, ...]
    printed: Printed | None
    seconds: float

    @property
    def mean(self) -> float | None:
        known = _known(self.ours)
        return statistics.fmean(known) if known is not None else None

    @property
    def std(self) -> float | None:
        """Sample standard deviation; None for one seed."""
        known = _known(self.ours)
        return statistics.stdev(known) if known is not None and len(known) > 1 else None

    def describe(self) -> dict[str, Any]:
        """As JSON."""
        printed = None if self.printed is None else {"mean": self.printed.mean, "spread": self.printed.spread}
        own = {"row": self.row, "column": self.column, "mean": self.mean, "std": self.std, "ours": list(self.ours)}
        return {**own, "printed": printed, "seconds": self.seconds}


def _known(values: Sequence[float | None]) -> list[float] | None:
    """The values, if every seed has one."""
    known = [v for v in values if v is not None]
    return known if len(known) == len(values) else None


def plan(table: Table, scale: Scale, seeds: Sequence[int], out: Path, over: Callable[[Settings], Settings]) -> list[Spot]:
    """Every place of the table, checked before the first run begins; `over` lays a command's own settings over a run's."""
    spots = []
    for column in table.columns:
        for row in table.rows:
            folder = out / folder_name(row.name) / folder_name(column.runs)
            cells = seeded(row.name, over(table.run(row, column, scale)), seeds, folder, column.runs)
            spots.append(Spot(row, column, tuple(cells)))
    _check_data(cells_of(spots))
    return spots


def cells_of(spots: Sequence[Spot]) -> list[Cell]:
    """The runs, each once."""
    return list({cell.path: cell for spot in spots for cell in spot.cells}.values())


def _check_data(cells: Sequence[Cell]) -> None:
    """All data sets are there, or the first hour would be wasted."""
    there = set(store.names())
    missing = {c.config.data.name for c in cells if c.config.data.name not in there and crowd.size_of(c.config.data.name) is None}
    all_at_once([f"there is no data set '{name}'; {store.ADD.replace('NAME', name)}" for name in sorted(missing)], "data")


def figures(spots: Sequence[Spot]) -> list[Figure]:
    """What the runs have come to; all of them are done."""
    return [
        Figure(
            row=spot.row.name,
            column=spot.column.name,
            ours=tuple(measured(spot.column.measure, dict(curve(cell.path))) for cell in spot.cells),
            printed=spot.row.printed.get(spot.column.name),
            seconds=statistics.fmean((RunFolder.read_only(c.path).result() or {})["seconds"] for c in spot.cells),
        )
        for spot in spots
    ]


def gain(figure: Figure, first: Figure) -> float | None:
    """Mean difference to another row, seed by seed: one seed gives both the same clients, cohorts and batches."""
    pairs = zip(figure.ours, first.ours, strict=True)
    known = _known([None if a is None or b is None else a - b for a, b in pairs])
    return None if known is None else statistics.fmean(known)
