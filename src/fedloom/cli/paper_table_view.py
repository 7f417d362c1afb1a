"""`fedloom reproduce PAPER/TABLE`: plans, runs, and shows a table next to the printed numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedloom.cli.comparison_view import drawn
from fedloom.cli.output import out, print_json, print_table, say, table
from fedloom.cli.plan_view import choose_runs
from fedloom.cli.suite_view import LEGEND, Request
from fedloom.cli.table_verdicts import (
    NO_GATE,
    as_result_file,
    claims_json,
    claims_table,
    decided_claims,
    figures_json,
    judged_columns,
)

if TYPE_CHECKING:
    from fedloom.claims.verdict import Verdict
    from fedloom.reports.paper_table import CellResult, TableCell
    from fedloom.settings.paper_table import Scale, Table


def reproduce_table(paper_table: Table, request: Request, seeds: int, folder: Path) -> None:
    """Plan the runs of a table, run what is missing, and show it."""
    from fedloom.reports.paper_table import distinct_runs, plan

    for line in header(paper_table, request.scale):
        say(line)
    cells = plan(paper_table, request.scale, seeds, folder, request.override)
    choice = choose_runs(distinct_runs(cells), request.hours, request.jobs)
    if request.dry_run:
        if request.as_json:
            print_json({"preset": paper_table.name, **choice.facts})
        return
    request.run_all(choice.now)
    _show(paper_table, request, cells, folder, choice.left)


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


def _show(
    paper_table: Table, request: Request, cells: Sequence[TableCell], folder: Path, left: int
) -> None:
    """Print the figures of the finished runs, one block per column, and what they decide."""
    from fedloom.experiment.stored_run import gave_up
    from fedloom.reports.paper_table import average_choices, cell_results, distinct_runs

    results = cell_results(cells)
    choices = average_choices(cells, results)
    picture = _plot(choices or results, folder / "table.png", paper_table.name)
    found = as_result_file(paper_table, request.scale, results)
    judged, decided = judged_columns(paper_table, found), decided_claims(found)
    diverged = [str(run.path) for run in distinct_runs(cells) if gave_up(run.path)]
    if request.as_json:
        print_json(
            {
                "preset": paper_table.name,
                "scale": request.scale,
                "reduced": paper_table.about.reduced if request.scale == "small" else "",
                "figures": figures_json(results, found, judged),
                "choices": [result.describe() for result in choices],
                "claims": claims_json(decided),
                "picture": picture,
                "out": str(folder),
                "left": left,
                "gave_up": diverged,
            }
        )
        return
    for each in judged:
        title = f"{each.column}: {each.metric}; compared with {each.base}"
        print_table(table(each.heads, each.lines, title=title, right=(1, 3, 5)))
        for note in each.notes:
            out.print(note, highlight=False, markup=False)
        if of_column := [result for result in choices if result.column == each.column]:
            print_table(_choices_block(f"{title}, over choices", of_column))
    _show_claims(paper_table, decided)
    for line in _notes(paper_table, cells, folder, picture):
        out.print(line, highlight=False, markup=False)
    if diverged:
        say(f"{len(diverged)} runs gave up and have no figures, the first in {diverged[0]}")
    if left:
        say(f"{left} runs are left; the same command continues")


def _show_claims(paper_table: Table, decided: Sequence[Verdict]) -> None:
    if decided:
        print_table(claims_table(decided))
        return
    paper = paper_table.name.partition("/")[0]
    said = f"no claim is about these cells alone; all claims: fedloom reproduce {paper} --claims"
    out.print(said, highlight=False, markup=False)


def _notes(
    paper_table: Table, cells: Sequence[TableCell], folder: Path, picture: str | None
) -> list[str]:
    """What the figures mean, and what is missing for a verdict."""
    from fedloom.claims.suites import rule

    paper = paper_table.name.partition("/")[0]
    lines = [f"fair test: not known: {NO_GATE} (fedloom reproduce {paper} --dry-run)"]
    seeds, fewest = len(cells[0].runs), rule().minimum_seeds
    if seeds == 1:
        lines.append(f"one seed gives no interval; {fewest} or more can decide: --seeds {fewest}")
    elif seeds < fewest:
        lines.append(f"{seeds} seeds decide nothing; {fewest} or more can: --seeds {fewest}")
    lines.append(f"{LEGEND}; runs: {folder}")
    return [*lines, f"picture: {picture}"] if picture else lines


def _plot(results: Sequence[CellResult], path: Path, title: str) -> str | None:
    """Plot the results that are percentages; None if there are none or no plot can be drawn."""
    from fedloom.metrics.measures import counts_rounds
    from fedloom.reports.plots import effects

    percentages = [result for result in results if not counts_rounds(result.measure)]
    if percentages and drawn(lambda file: effects(percentages, file, title), path):
        return str(path)
    return None


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


def _percentage(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
