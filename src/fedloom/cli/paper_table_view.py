"""`fedloom reproduce PAPER/TABLE`: shows a reproduced table next to the printed numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedloom.cli.comparison_view import drawn
from fedloom.cli.output import out, print_json, print_table, say, table
from fedloom.metrics.curve import rounds_to

if TYPE_CHECKING:
    from fedloom.experiment.schedule import PlannedRun
    from fedloom.reports.paper_table import CellResult
    from fedloom.settings.paper_table import Scale, Table

Settings = dict[str, Any]

LEGEND = (
    "ours: mean over seeds, N+ if a seed does not reach the target within N rounds; "
    "std: over seeds; gain: over the first row, seed by seed; "
    "paper: as printed, at the paper's scale and for its targets"
)


def show_table(
    paper_table: Table,
    scale: Scale,
    seeds: int,
    folder: Path,
    override: Callable[[Settings], Settings],
    run_all: Callable[[Sequence[PlannedRun]], None],
    as_json: bool,
) -> None:
    """Run what is missing of a table, then print it, one block per column.

    override: lays the settings of the command line over a run's; run_all: executes the runs.
    """
    from fedloom.reports.paper_table import average_choices, cell_results, distinct_runs, plan

    for line in header(paper_table, scale):
        say(line)
    cells = plan(paper_table, scale, seeds, folder, override)
    run_all(distinct_runs(cells))
    results = cell_results(cells)
    choices = average_choices(cells, results)
    picture = _plot(choices or results, folder / "table.png", paper_table.name)
    if as_json:
        print_json(
            {
                "preset": paper_table.name,
                "scale": scale,
                "reduced": paper_table.about.reduced if scale == "small" else "",
                "figures": [result.describe() for result in results],
                "choices": [result.describe() for result in choices],
                "picture": picture,
                "out": str(folder),
            }
        )
        return
    for column in paper_table.columns:
        title = f"{column.name}: {column.measure}"
        print_table(_block(title, _in_column(column.name, results)))
        if of_column := _in_column(column.name, choices):
            print_table(_choices_block(f"{title}, over choices", of_column))
    out.print(f"{LEGEND}; runs: {folder}", highlight=False)
    if picture:
        out.print(f"picture: {picture}", highlight=False)


def header(paper_table: Table, scale: Scale) -> list[str]:
    """What is run, and how it differs from the paper."""
    about = paper_table.about
    lines = [f"{paper_table.name}: {about.title}", f"paper: {about.settings}"]
    if about.departures:
        lines.append(f"departures: {about.departures}")
    if scale == "small":
        lines.append(f"scale small, reduced: {about.reduced}")
    else:
        lines.append("scale paper: nothing reduced")
    return lines


def _in_column(name: str, results: Sequence[CellResult]) -> list[CellResult]:
    return [result for result in results if result.column == name]


def _plot(results: Sequence[CellResult], path: Path, title: str) -> str | None:
    """Plot the results that are percentages; None if there are none or no plot can be drawn."""
    from fedloom.metrics.measures import counts_rounds
    from fedloom.reports.plots import effects

    percentages = [result for result in results if not counts_rounds(result.measure)]
    if percentages and drawn(lambda file: effects(percentages, file, title), path):
        return str(path)
    return None


def _block(title: str, results: Sequence[CellResult]) -> Any:
    columns = ["row", "ours", "std", "gain", "paper", "gain", "seconds"]
    lines = [_line(result, results[0]) for result in results]
    return table(columns, lines, title=title, right=(1, 2, 3, 4, 5, 6))


def _line(result: CellResult, baseline: CellResult) -> list[str]:
    """A row's cells; gains are over the baseline, the first row."""
    from fedloom.metrics.measures import counts_rounds
    from fedloom.reports.paper_table import gain

    if counts_rounds(result.measure):
        ours, as_text = rounds_to(result.ours, result.rounds), _count
    else:
        ours, as_text = _percentage(result.mean), _percentage
    return [
        result.row,
        ours,
        as_text(result.std),
        as_text(gain(result, baseline), "+"),
        str(result.printed or "-"),
        as_text(_printed_gain(result, baseline), "+"),
        f"{result.seconds:.0f}",
    ]


def _printed_gain(result: CellResult, baseline: CellResult) -> float | None:
    if result.printed is None or baseline.printed is None:
        return None
    return result.printed.gain(baseline.printed)


def _choices_block(title: str, results: Sequence[CellResult]) -> Any:
    lines = [
        [
            result.row,
            str(len(result.ours)),
            _percentage(result.mean),
            _percentage(result.std),
            str(result.printed or "-"),
        ]
        for result in results
    ]
    columns = ["choose", "choices", "ours", "std", "paper"]
    return table(columns, lines, title=title, right=(1, 2, 3, 4))


def _percentage(value: float | None, sign: str = "") -> str:
    return "-" if value is None else f"{value:{sign}.2f}"


def _count(value: float | None, sign: str = "") -> str:
    return "-" if value is None else f"{round(value, 1):{sign}g}"
