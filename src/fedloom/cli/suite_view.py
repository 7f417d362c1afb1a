"""`fedloom reproduce` of a paper, a claim or a suite: plans, runs, collects and shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedloom.cli.claims_view import show_verdicts
from fedloom.cli.output import out, print_json, print_table, say, table
from fedloom.cli.plan_view import choose_runs

if TYPE_CHECKING:
    from fedloom.claims.plan_suite import Override, SuitePlan
    from fedloom.claims.result_files import ResultFile
    from fedloom.claims.suites import Suite
    from fedloom.cli.compare import RunAll
    from fedloom.settings.paper_table import Scale

LEGEND = (
    "ours: mean over seeds; gains, ratios: relative to the row named above the table, by seed; "
    "interval: paired t interval of their mean, 95 % (99 % after an extension); paper: as printed, "
    "at the paper's scale; verdict on the sign: whether a row is above or below that row, as in "
    "the paper"
)


@dataclass(frozen=True)
class Request:
    """What was asked for on the command line.

    results: the folder of the result files. commit: the one that the runs were made with, if it is
    not the present one.
    """

    scale: Scale
    out: Path
    override: Override
    run_all: RunAll
    jobs: int
    hours: float | None = None
    dry_run: bool = False
    results: Path | None = None
    commit: str | None = None
    as_json: bool = False


def reproduce_suites(suites: Sequence[Suite], request: Request) -> None:
    """Plan the suites together, run what is missing, and show their tables."""
    from fedloom.claims.analyses import run_analyses
    from fedloom.claims.plan_suite import plan_suite

    plans = [plan_suite(suite, request.scale, request.out, request.override) for suite in suites]
    for plan in plans:
        say(f"{plan.suite.id}: {plan.suite.title}")
        say(f"scale: {plan.scale}")
    runs = list({run.path: run for plan in plans for run in plan.runs}.values())
    choice = choose_runs(runs, request.hours, request.jobs)
    if request.dry_run:
        if request.as_json:
            print_json({"suites": [plan.suite.id for plan in plans], **choice.facts})
        return
    request.run_all(choice.now)
    for plan in plans:
        run_analyses(plan, request.jobs, say)
    _show(plans, request, choice.left)


def _show(plans: Sequence[SuitePlan], request: Request, left: int) -> None:
    from fedloom.claims.collect import collect, file_name, write_results, write_row_files
    from fedloom.claims.evidence import verdicts
    from fedloom.claims.result_files import read_results

    folder = request.results or request.out / "results"
    found = {plan.suite.id: collect(plan, request.commit) for plan in plans}
    files = [write_results(found[p.suite.id], folder, file_name(p.suite)) for p in plans]
    for plan, file in zip(plans, files, strict=True):
        write_row_files(plan, file)
    if request.as_json:
        print_json({"results": list(found.values()), "files": list(map(str, files)), "left": left})
        return
    for plan, result in zip(plans, read_results(files), strict=True):
        show_figures(plan, result)
    wanted = {claim for plan in plans for claim in plan.suite.claims}
    show_verdicts([v for v in verdicts(results=read_results(files)) if v.claim.id in wanted])
    out.print(f"{LEGEND}; runs: {request.out}", highlight=False)
    for file in files:
        rows = f"settings and logs of its rows: {file.with_suffix('')}"
        out.print(f"result file: {file}; {rows}", highlight=False, markup=False)
    diverged = sorted({run for result in found.values() for run in result["gave_up"]})
    if diverged:
        say(f"{len(diverged)} runs gave up and have no figures, the first in {diverged[0]}")
    if left:
        say(f"{left} runs are left; the same command continues")


def show_figures(plan: SuitePlan, result: ResultFile) -> None:
    """Print a suite's figures next to the paper's, one block per preset and column."""
    from fedloom.claims.suite_table import figure_tables

    met = {True: "met", False: "not met, so this is no fair test", None: "not known"}
    said = f"{plan.suite.id}: gate {met[result.gate.met]}: {result.gate.why}"
    out.print(said, highlight=False, markup=False)
    for found in figure_tables(result):
        about = f"{found.preset}, column {found.column}: {found.metric}"
        title = f"{about}; compared with {found.base}"
        print_table(table(found.heads, found.lines, title=title, right=(1, 3, 5)))
        for note in found.notes:
            out.print(note, highlight=False, markup=False)


def try_gate(suite: Suite, request: Request) -> None:
    """Run what the gate of a suite looks at, on its own seed, and say whether it is met."""
    from fedloom.claims.gates import trial_result
    from fedloom.claims.plan_suite import gate_suite, plan_suite

    trial = gate_suite(suite)
    plan = plan_suite(trial, request.scale, request.out, request.override)
    say(f"gate of {suite.id}, on seed {suite.gate_seed}, which is not reported")
    if plan.changes:
        say(f"with other settings than the suite's: {', '.join(plan.changes)}")
    choice = choose_runs(plan.runs, request.hours, request.jobs)
    if request.dry_run:
        if request.as_json:
            print_json({"gate_of": suite.id, **choice.facts})
        return
    request.run_all(choice.now)
    result = trial_result(plan)
    if request.as_json:
        print_json({"suite": suite.id, "seed": suite.gate_seed, **result.describe()})
        return
    met = {True: "met", False: "not met", None: "not known"}[result.met]
    out.print(f"gate of {suite.id}: {met}: {result.why}", highlight=False, markup=False)
