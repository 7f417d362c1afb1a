"""`fedloom reproduce --scale paper`: every cell is checked before anything is timed or run.

Everything that is missing is reported at once. A dry run counts the work of the runs; timing steps
of the papers' size would take minutes on a CPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fedloom.cli.output import print_json, say

if TYPE_CHECKING:
    from fedloom.claims.suites import Suite
    from fedloom.cli.suite_view import Request
    from fedloom.inspect.paper_scale import CostCounter
    from fedloom.settings.config import Config
    from fedloom.settings.paper_table import Table


@dataclass(frozen=True)
class PlannedCell:
    """A cell at the paper's scale: its name, what is measured, its settings, how many seeds."""

    title: str
    measure: str
    config: Config
    seeds: int


def cells_of_suites(suites: Sequence[Suite], request: Request) -> Iterator[PlannedCell]:
    """The cells of the suites, without the settings of their own scale."""
    from fedloom.claims.plan_suite import suite_settings
    from fedloom.settings.config import load

    for suite in suites:
        for group, row, column, fixed in suite_settings(replace(suite, overrides=()), "paper"):
            config = load(request.override(fixed))
            title = f"{group.preset}, {row.name}, {column.name}"
            yield PlannedCell(title, column.measure, config, len(group.seeds))


def cells_of_table(paper_table: Table, seeds: int, request: Request) -> Iterator[PlannedCell]:
    """The cells of a table."""
    from fedloom.settings.config import load

    for column in paper_table.columns:
        for row in paper_table.rows:
            config = load(request.override(paper_table.run_settings(row, column, "paper")))
            title = f"{row.name}, {column.name}"
            yield PlannedCell(title, column.measure, config, seeds)


def check_paper_scale(name: str, cells: Sequence[PlannedCell], request: Request) -> None:
    """Raise with everything that would stop a cell; in a dry run, show the counted plan first."""
    from fedloom.core.errors import raise_all

    stopped = _stopped(cells)
    if request.dry_run:
        _show_plan(name, _distinct_runs(cells), set(stopped), request.as_json)
    problems: dict[str, list[str]] = {}
    for cell, problem in stopped.items():
        problems.setdefault(problem, []).append(cell)
    said = [f"{problem} ({_named(titles)})" for problem, titles in problems.items()]
    here = [*_device_problems(cells), *_data_problems(cells)]
    raise_all([*here, *said], "the paper's scale")


def _named(titles: Sequence[str]) -> str:
    more = f" and {len(titles) - 1} more" if len(titles) > 1 else ""
    return f"{titles[0]}{more}"


def _distinct_runs(cells: Sequence[PlannedCell]) -> list[PlannedCell]:
    """Cells with rounds of their own; the others take them over."""
    from fedloom.experiment.reuse import rounds_key

    found: dict[str, PlannedCell] = {}
    for cell in cells:
        key = rounds_key(cell.config) or cell.config.model_dump_json()
        known = found.setdefault(key, cell)
        found[key] = replace(known, seeds=max(known.seeds, cell.seeds))
    return list(found.values())


def _stopped(cells: Sequence[PlannedCell]) -> dict[str, str]:
    """The titles of the cells that could not run on any machine, each with the reason."""
    from fedloom.core.errors import UserError
    from fedloom.inspect.paper_data import PAPER_DATA
    from fedloom.inspect.paper_scale import check_run
    from fedloom.metrics.measures import check as check_measure

    stopped: dict[str, str] = {}
    checked: set[str] = set()  # cells that share their runs need one check
    for cell in cells:
        config, settings = cell.config, cell.config.model_dump_json()
        try:
            check_measure(cell.measure, config.rounds, config.evaluate.every)
            if settings not in checked and config.data.name in PAPER_DATA:
                check_run(config.model_copy(update={"device": "cpu"}))
        except UserError as error:
            stopped[cell.title] = str(error)
        checked.add(settings)
    return stopped


def _device_problems(cells: Sequence[PlannedCell]) -> Iterator[str]:
    """Devices that this machine does not have."""
    from fedloom.core.errors import UserError
    from fedloom.experiment.build import resolve_device

    for device in dict.fromkeys(cell.config.device for cell in cells):
        try:
            resolve_device(device)
        except UserError as error:
            yield str(error)


def _data_problems(cells: Sequence[PlannedCell]) -> list[str]:
    """Data sets that are missing here, or smaller than the paper's."""
    from fedloom.data import listing
    from fedloom.inspect.paper_data import PAPER_DATA
    from fedloom.inspect.paper_scale import data_problem
    from fedloom.reports.paper_table import missing_data

    stored = listing.names()
    here = [c.config for c in cells if c.config.data.name in stored]
    small = (data_problem(config) for config in here if config.data.name in PAPER_DATA)
    missing = missing_data({cell.config.data.name for cell in cells})
    return [*missing, *dict.fromkeys(filter(None, small))]


def _counted_as(name: str) -> str:
    """What `fedloom cost` counts: a table, or the paper of a claim."""
    from fedloom.settings.presets import names

    return name if name in names() else name.partition("/")[0]


def _show_plan(name: str, runs: Sequence[PlannedCell], stopped: set[str], as_json: bool) -> None:
    """Print each kind of run as soon as its work is counted, then the hours of all."""
    from fedloom.diagnostics.cost.gpu import DEFAULT_GPU, sustained_flops
    from fedloom.inspect.paper_scale import CostCounter

    total = sum(run.seeds for run in runs)
    flops = sustained_flops()
    say(
        f"plan at the paper's scale, counted and not timed: {total} trainings of {len(runs)} "
        "kinds; rows that differ only in what follows the last round share one"
    )
    counter, facts = CostCounter(), []
    for run in runs:
        if run.title in stopped:
            say(f"  {run.title}: {run.seeds} x not counted, since it cannot run")
            continue
        facts.append(_work(run, counter, flops))
        say(_line(facts[-1]))
    hours = sum(fact["runs"] * (fact["hours"] or 0) for fact in facts)
    say(
        f"estimate: {hours:,.1f} h on one GPU ({DEFAULT_GPU}: {flops / 1e12:.2f} TFLOP/s, and at "
        "least 2 ms per step, both assumed); finished runs are not subtracted; for other GPUs: "
        f"fedloom cost {_counted_as(name)} --paper-scale --gpu h100"
    )
    if as_json:
        print_json({"name": name, "gpu": DEFAULT_GPU, "runs": facts, "hours": round(hours, 3)})


def _work(run: PlannedCell, counter: CostCounter, flops: float) -> dict[str, Any]:
    """What each run of a kind needs; no steps and hours if the data are not a paper's."""
    from fedloom.diagnostics.cost.gpu import training_hours
    from fedloom.inspect.paper_data import PAPER_DATA
    from fedloom.inspect.paper_scale import run_work

    data = run.config.data.name
    fact = {"run": run.title, "data": data, "runs": run.seeds, "rounds": run.config.rounds}
    if data not in PAPER_DATA:
        return {**fact, "steps": None, "macs": None, "hours": None}
    steps, macs = run_work(run.config, counter)
    hours = round(training_hours(macs, steps, flops), 3)
    return {**fact, "steps": round(steps), "macs": round(macs), "hours": hours}


def _line(fact: dict[str, Any]) -> str:
    head = f"  {fact['run']} on {fact['data']}: {fact['runs']} x "
    if fact["hours"] is None:
        return f"{head}{fact['rounds']:,} rounds, not counted: not a data set of the papers"
    return f"{head}{fact['hours']:.1f} h ({fact['rounds']:,} rounds, {fact['steps']:,} steps)"
