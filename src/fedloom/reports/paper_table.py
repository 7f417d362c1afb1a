"""Reproduces a table of a paper: plans its runs, and sets our results next to the printed ones."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
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
from fedloom.runs.folder_layout import CONFIG
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

    ours: one value per seed; None where a target was not reached. seeds: those of the values.
    rounds: the length of the runs. A target that was not reached needs more rounds than this.
    """

    row: str
    column: str
    ours: tuple[float | None, ...]
    printed: Printed | None
    seconds: float
    rounds: int = 0
    measure: str = "accuracy"
    seeds: tuple[int, ...] = ()

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
            label = table.label_of_runs(column)
            runs = plan_seeds(row.name, settings, seeds, folder, data, label)
            cells.append(TableCell(row, column, tuple(runs)))
    check_data(distinct_runs(cells))
    check_measures(cells)
    return cells


def distinct_runs(cells: Sequence[TableCell]) -> list[PlannedRun]:
    """The runs of all cells, each once: columns with the same settings share theirs.

    They are ordered by seed: if only some are made, they can be compared.
    """
    found = {run.path: run for cell in cells for run in cell.runs}
    return sorted(found.values(), key=lambda run: run.seed)


def check_data(runs: Sequence[PlannedRun]) -> None:
    """Check that all data sets exist: a missing one must not surface after hours of other runs."""
    raise_all(missing_data({run.config.data.name for run in runs}), "data")


def missing_data(names: Iterable[str]) -> list[str]:
    """A sentence for each of these data sets that is not on this machine."""
    stored = set(listing.names())
    missing = sorted(n for n in names if n not in stored and synthetic.user_count(n) is None)
    return [
        f"there is no data set '{name}'; {listing.ADD_HINT.replace('NAME', name)}"
        for name in missing
    ]


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
    """The results of the cells that have a finished run.

    Raises if the runs of a column were made with different data; columns may differ.
    """
    read = _finished(distinct_runs(cells))
    columns: dict[str, list[StoredRun]] = {}
    results = []
    for cell in cells:
        runs = [read[run.path] for run in cell.runs if run.path in read]
        columns.setdefault(cell.column.name, []).extend(runs)
        if runs:
            results.append(_cell_result(cell, runs))
    for of_column in columns.values():
        check_comparable(of_column)
    return results


def _finished(runs: Sequence[PlannedRun]) -> dict[Path, StoredRun]:
    """The runs that are finished, by folder."""
    begun = {run.path: read_run(run.path) for run in runs if (run.path / CONFIG).exists()}
    return {path: run for path, run in begun.items() if run.result is not None}


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
        seeds=tuple(run.config.seed for run in runs),
    )


def average_choices(cells: Sequence[TableCell], results: Sequence[CellResult]) -> list[CellResult]:
    """Merge rows that are choices of the same number of items into the paper's one row.

    In the merged result `ours` holds one value per choice, the mean over its seeds.
    """
    found = {(result.row, result.column): result for result in results}
    groups: dict[tuple[str, str], list[CellResult]] = {}
    printed: dict[tuple[str, str], Printed | None] = {}
    for row, column in ((cell.row, cell.column.name) for cell in cells):
        if row.choice and (row.name, column) in found:
            groups.setdefault((row.choice, column), []).append(found[row.name, column])
            printed[row.choice, column] = row.printed.get(column)
    return [_merged(place[0], members, printed[place]) for place, members in groups.items()]


def _merged(choice: str, results: Sequence[CellResult], printed: Printed | None) -> CellResult:
    return replace(
        results[0],
        row=choice,
        ours=tuple(result.mean for result in results),
        printed=printed,
        seconds=statistics.fmean(result.seconds for result in results),
        seeds=(),
    )
