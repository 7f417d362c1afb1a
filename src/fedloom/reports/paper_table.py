"""Reproduces a table of a paper: plans its runs, and sets our results next to the printed ones."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fedloom.core.errors import UserError, raise_all
from fedloom.data import listing, synthetic
from fedloom.experiment.identity import CurrentData
from fedloom.experiment.schedule import PlannedRun, folder_name, plan_seeds
from fedloom.experiment.stored_run import StoredRun, read_run
from fedloom.metrics.curve import mean_of_all
from fedloom.metrics.measures import check, measured
from fedloom.reports.client_scores import final_scores, score_template
from fedloom.reports.comparable import check_comparable
from fedloom.settings.paper_table import Column, Printed, Row, Scale, Settings, Table


@dataclass(frozen=True)
class TableCell:
    """One cell of the table, with its runs, one per seed."""

    row: Row
    column: Column
    runs: tuple[PlannedRun, ...]


@dataclass(frozen=True)
class CellResult:
    """What a cell of the table holds: our values, in the paper's units, and the printed number.

    ours: one value per seed; None where a target was not reached.
    rounds: the length of the runs. A target that was not reached needs more rounds than this.
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
        """Mean over seeds; None if one of them has no value."""
        return mean_of_all(self.ours)

    @property
    def std(self) -> float | None:
        """Sample standard deviation over seeds; None for one seed, or if one has no value."""
        values = [value for value in self.ours if value is not None]
        if len(values) < len(self.ours) or len(values) < 2:
            return None
        return statistics.stdev(values)

    def describe(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "row": self.row,
            "column": self.column,
            "measure": self.measure,
            "rounds": self.rounds,
            "mean": self.mean,
            "std": self.std,
            "ours": list(self.ours),
            "printed": self.printed and asdict(self.printed),
            "seconds": self.seconds,
        }


def plan(
    table: Table, scale: Scale, seeds: int, out: Path, override: Callable[[Settings], Settings]
) -> list[TableCell]:
    """Every cell of the table with its runs, all checked before the first run starts.

    override: lays the settings given on the command line over those of a run.
    """
    cells, data = [], CurrentData()
    for column in table.columns:
        for row in table.rows:
            settings = override(table.run_settings(row, column, scale))
            folder = out / folder_name(row.name) / folder_name(column.runs_from)
            runs = plan_seeds(row.name, settings, seeds, folder, data, column.runs_from)
            cells.append(TableCell(row, column, tuple(runs)))
    check_data(distinct_runs(cells))
    check_measures(cells)
    return cells


def distinct_runs(cells: Sequence[TableCell]) -> list[PlannedRun]:
    """The runs of all cells, each once: columns with the same settings share theirs."""
    return list({run.path: run for cell in cells for run in cell.runs}.values())


def check_data(runs: Sequence[PlannedRun]) -> None:
    """Check that all data sets exist: a missing one must not surface after hours of other runs."""
    stored = set(listing.names())
    needed = {run.config.data.name for run in runs}
    missing = sorted(n for n in needed if n not in stored and synthetic.user_count(n) is None)
    problems = [
        f"there is no data set '{name}'; {listing.ADD_HINT.replace('NAME', name)}"
        for name in missing
    ]
    raise_all(problems, "data")


def check_measures(cells: Sequence[TableCell]) -> None:
    """Check that every column's measure can be computed from runs of their length."""
    problems = filter(None, map(_measure_problem, cells))
    raise_all(dict.fromkeys(problems), "columns")


def _measure_problem(cell: TableCell) -> str | None:
    config, column = cell.runs[0].config, cell.column
    try:
        check(column.measure, config.rounds, config.evaluate.every, score_template(config))
    except UserError as error:
        return (
            f"'{column.name}' is {column.measure}: {error}; or choose other columns with --columns"
        )
    return None


def cell_results(cells: Sequence[TableCell]) -> list[CellResult]:
    """The results of the cells, whose runs must all be finished.

    Raises if the runs of a column were made with different data; columns may differ.
    """
    read = {run.path: read_run(run.path) for run in distinct_runs(cells)}
    columns: dict[str, list[StoredRun]] = {}
    for cell in cells:
        columns.setdefault(cell.column.name, []).extend(read[run.path] for run in cell.runs)
    for runs in columns.values():
        check_comparable(runs)
    return [_cell_result(cell, [read[run.path] for run in cell.runs]) for cell in cells]


def _cell_result(cell: TableCell, runs: Sequence[StoredRun]) -> CellResult:
    results = [run.result for run in runs if run.result is not None]
    measure = cell.column.measure
    ours = [measured(measure, run.history.accuracy, final_scores(run)) for run in runs]
    # The paper prints one number for all choices; average_choices puts it next to their mean.
    printed = None if cell.row.choice else cell.row.printed.get(cell.column.name)
    return CellResult(
        row=cell.row.name,
        column=cell.column.name,
        ours=tuple(ours),
        printed=printed,
        seconds=statistics.fmean(result.seconds for result in results),
        rounds=min(result.rounds for result in results),
        measure=measure,
    )


def average_choices(cells: Sequence[TableCell], results: Sequence[CellResult]) -> list[CellResult]:
    """Merge rows that are choices of the same number of items into the paper's one row.

    In the merged result `ours` holds one value per choice, the mean over its seeds.
    """
    groups: dict[tuple[str, str], list[tuple[TableCell, CellResult]]] = {}
    for cell, result in zip(cells, results, strict=True):
        if cell.row.choice:
            groups.setdefault((cell.row.choice, cell.column.name), []).append((cell, result))
    return [_merged(choice, members) for (choice, _), members in groups.items()]


def _merged(choice: str, members: Sequence[tuple[TableCell, CellResult]]) -> CellResult:
    first_cell, first_result = members[0]
    results = [result for _, result in members]
    return replace(
        first_result,
        row=choice,
        ours=tuple(result.mean for result in results),
        printed=first_cell.row.printed.get(first_cell.column.name),
        seconds=statistics.fmean(result.seconds for result in results),
    )


def gain(result: CellResult, baseline: CellResult) -> float | None:
    """Mean difference from another row, seed by seed; None if a value is missing.

    With the same seed both rows have the same clients, cohorts and batches.
    """
    pairs = zip(result.ours, baseline.ours, strict=True)
    differences = [None if a is None or b is None else a - b for a, b in pairs]
    return mean_of_all(differences)
