"""A table of a paper, run: one cell for each row, column and seed, and our figures beside the printed ones."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fedloom.core.errors import UserError, raise_all
from fedloom.data import store, synthetic
from fedloom.experiment.schedule import PlannedRun, folder_name, plan_seeds
from fedloom.experiment.stored_run import StoredRun, read_run
from fedloom.metrics.curve import mean_of_all
from fedloom.metrics.measures import check, measured
from fedloom.reports.client_scores import final_scores, score_template
from fedloom.settings.paper_table import Column, Printed, Row, Scale, Settings, Table


@dataclass(frozen=True)
class TableCell:
    """A place in the table: its row, its column and its runs."""

    row: Row
    column: Column
    cells: tuple[PlannedRun, ...]


@dataclass(frozen=True)
class Figure:
    """What stands in a place: ours by seed, in the paper's units, None where it was not reached; and what is printed.

    rounds: the length of the runs, which a figure that was not reached lies beyond.
    """

    row: str
    column: str
    ours: tuple[float | None, ...]
    printed: Printed | None
    seconds: float
    rounds: int = 0
    measure: str = "accuracy"

    @property
    def mean(self) -> float | None:
        """Over seeds; None if one of them has not reached it."""
        return mean_of_all(self.ours)

    @property
    def std(self) -> float | None:
        """Sample standard deviation; None for one seed, and if one of them has not reached it."""
        known = [v for v in self.ours if v is not None]
        return statistics.stdev(known) if len(known) == len(self.ours) > 1 else None

    def describe(self) -> dict[str, Any]:
        """As JSON."""
        place = {
            "row": self.row,
            "column": self.column,
            "measure": self.measure,
            "rounds": self.rounds,
        }
        own = {"mean": self.mean, "std": self.std, "ours": list(self.ours)}
        return {
            **place,
            **own,
            "printed": self.printed and asdict(self.printed),
            "seconds": self.seconds,
        }


def plan(
    table: Table, scale: Scale, seeds: int, out: Path, over: Callable[[Settings], Settings]
) -> list[TableCell]:
    """Every place of the table, checked before the first run begins; `over` lays a command's own settings over a run's."""
    spots = []
    for column in table.columns:
        for row in table.rows:
            folder = out / folder_name(row.name) / folder_name(column.runs)
            cells = plan_seeds(
                row.name, over(table.run(row, column, scale)), seeds, folder, column.runs
            )
            spots.append(TableCell(row, column, tuple(cells)))
    _check_data(runs_of(spots))
    _check_measures(spots)
    return spots


def runs_of(spots: Sequence[TableCell]) -> list[PlannedRun]:
    """The runs, each once."""
    return list({cell.path: cell for spot in spots for cell in spot.cells}.values())


def _check_data(cells: Sequence[PlannedRun]) -> None:
    """All data sets are there, or the first hour would be wasted."""
    there = set(store.names())
    missing = {
        c.config.data.name
        for c in cells
        if c.config.data.name not in there and synthetic.user_count(c.config.data.name) is None
    }
    raise_all(
        [
            f"there is no data set '{name}'; {store.ADD_HINT.replace('NAME', name)}"
            for name in sorted(missing)
        ],
        "data",
    )


def _check_measures(spots: Sequence[TableCell]) -> None:
    """What the columns ask for can be read off runs of that many rounds."""
    raise_all(dict.fromkeys(filter(None, map(_complaint, spots))), "columns")


def _complaint(spot: TableCell) -> str | None:
    config = spot.cells[0].config
    try:
        check(spot.column.measure, config.rounds, config.evaluate.every, score_template(config))
    except UserError as error:
        return f"'{spot.column.name}' is {spot.column.measure}: {error}; or choose other columns with --columns"
    return None


def figures(spots: Sequence[TableCell]) -> list[Figure]:
    """What the runs have come to; all of them are done."""
    return [_figure(spot, [read_run(cell.path) for cell in spot.cells]) for spot in spots]


def _figure(spot: TableCell, runs: Sequence[StoredRun]) -> Figure:
    results = [run.result for run in runs if run.result is not None]
    return Figure(
        row=spot.row.name,
        column=spot.column.name,
        ours=tuple(
            measured(spot.column.measure, run.history.accuracy, final_scores(run)) for run in runs
        ),
        printed=None if spot.row.choice else spot.row.printed.get(spot.column.name),
        seconds=statistics.fmean(result.seconds for result in results),
        rounds=min(result.rounds for result in results),
        measure=spot.column.measure,
    )


def over_choices(spots: Sequence[TableCell], found: Sequence[Figure]) -> list[Figure]:
    """Rows that choose so many of the same words as one, as the paper prints them: ours by choice, each the mean over seeds."""
    alike: dict[tuple[str, str], list[tuple[TableCell, Figure]]] = {}
    for spot, figure in zip(spots, found, strict=True):
        if spot.row.choice:
            alike.setdefault((spot.row.choice, spot.column.name), []).append((spot, figure))
    return [_joined(choice, *zip(*places, strict=True)) for (choice, _), places in alike.items()]


def _joined(choice: str, spots: Sequence[TableCell], each: Sequence[Figure]) -> Figure:
    return replace(
        each[0],
        row=choice,
        ours=tuple(f.mean for f in each),
        printed=spots[0].row.printed.get(each[0].column),
        seconds=statistics.fmean(f.seconds for f in each),
    )


def gain(figure: Figure, first: Figure) -> float | None:
    """Mean difference to another row, seed by seed: one seed gives both the same clients, cohorts and batches."""
    pairs = zip(figure.ours, first.ours, strict=True)
    return mean_of_all([None if a is None or b is None else a - b for a, b in pairs])
