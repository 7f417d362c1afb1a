"""`fedloom reproduce` of a paper, a claim or a suite: plans, runs, collects and shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedloom.cli.output import out, print_json, print_table, say, table
from fedloom.cli.plan_view import choose_runs

if TYPE_CHECKING:
    from fedloom.claims.plan_suite import Override, SuitePlan
    from fedloom.claims.suites import Suite
    from fedloom.cli.compare import RunAll
    from fedloom.experiment.schedule import PlannedRun
    from fedloom.settings.paper_table import Printed, Scale

Json = dict[str, Any]
LEGEND = (
    "ours: mean over seeds; gains: over the first row, by seed; interval: of their mean, paired t, "
    "95 %; paper: as printed, at the paper's scale; verdict: whether the row is above or below the "
    "first one, as in the paper"
)


@dataclass(frozen=True)
class Request:
    """What was asked for on the command line.

    results: the folder of the result files. commit: what the runs were made with, if it is not what
    runs now.
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
        say(f"scale: {plan.suite.scale}")
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
    from fedloom.claims.collect import collect, file_name, write_results

    folder = request.results or request.out / "results"
    found = {plan.suite.id: collect(plan, request.commit) for plan in plans}
    files = [write_results(found[p.suite.id], folder, file_name(p.suite)) for p in plans]
    if request.as_json:
        print_json({"results": list(found.values()), "files": list(map(str, files)), "left": left})
        return
    for plan in plans:
        show_figures(plan, found[plan.suite.id])
    _show_verdicts(plans, files)
    out.print(f"{LEGEND}; runs: {request.out}", highlight=False)
    for file in files:
        out.print(f"result file: {file}", highlight=False, markup=False)
    diverged = sorted({run for result in found.values() for run in result["gave_up"]})
    if diverged:
        say(f"{len(diverged)} runs gave up and have no figures, the first in {diverged[0]}")
    if left:
        say(f"{left} runs are left; the same command continues")


def _show_verdicts(plans: Sequence[SuitePlan], files: Sequence[Path]) -> None:
    """Print the verdicts of these runs on the claims of the suites, one per line."""
    from fedloom.claims.evidence import verdicts
    from fedloom.claims.result_files import read_results

    wanted = {claim for plan in plans for claim in plan.suite.claims}
    found = [v for v in verdicts(results=read_results(files)) if v.claim.id in wanted]
    for v in found:
        line = f"{v.claim.id} ({v.claim.text}): {v.sentence}"
        out.print(line, highlight=False, markup=False)


def show_figures(plan: SuitePlan, result: Mapping[str, Any]) -> None:
    """Print a suite's figures next to the paper's, one block per preset and column."""
    gate = result["gate"]
    met = {True: "met", False: "not met, so this is no fair test", None: "not known yet"}
    out.print(
        f"{plan.suite.id}: gate {met[gate['met']]}: {gate['why']}", highlight=False, markup=False
    )
    blocks: dict[tuple[str, str], list[Json]] = {}
    for figure in result["figures"]:
        blocks.setdefault((figure["preset"], figure["column"]), []).append(figure)
    for (preset, column), figures in blocks.items():
        lines = [_line(figure, figures[0], gate["met"]) for figure in figures]
        title = f"{preset}, {column}: {figures[0]['metric']}"
        names = ["row", "ours", "gains", "mean gain", "interval", "paper", "verdict"]
        print_table(table(names, lines, title=title, right=(1, 3, 5)))


def _line(figure: Json, first: Json, fair: bool | None) -> list[str]:
    """A row's cells: gains are over the first row, for the seeds that both have."""
    from fedloom.claims.cell_verdict import cell_verdict
    from fedloom.metrics.paired import paired_difference

    ours, theirs = _known(figure), _known(first)
    complete = len(ours) == len(figure["by_seed"])
    mean = f"{sum(ours.values()) / len(ours):.2f}" if ours and complete else "-"
    found = None if figure is first else paired_difference(ours, theirs)
    gains = [f"{ours[seed] - theirs[seed]:+.2f}" for seed in ours if seed in theirs]
    interval = "-"
    if found is not None and found.interval is not None:
        interval = f"[{found.interval[0]:+.2f}, {found.interval[1]:+.2f}]"
    return [
        figure["row"],
        mean,
        "-" if found is None else " ".join(gains),
        "-" if found is None else f"{found.mean:+.2f}",
        interval,
        str(_printed(figure) or "-"),
        cell_verdict(ours, theirs, _printed(figure), _printed(first), fair),
    ]


def _known(figure: Json) -> dict[int, float]:
    return {int(seed): value for seed, value in figure["by_seed"].items() if value is not None}


def _printed(figure: Json) -> Printed | None:
    from fedloom.settings.presets import preset

    found = preset(figure["preset"]).table
    rows = () if found is None else found.rows
    printed = {row.name: row.printed.get(figure["column"]) for row in rows}
    return printed.get(figure["row"])


def try_gate(suite: Suite, request: Request) -> None:
    """Run what the gate of a suite looks at, on its own seed, and say whether it is met."""
    from fedloom.claims.gates import gate_result
    from fedloom.claims.plan_suite import gate_suite, plan_suite

    trial = gate_suite(suite)
    plan = plan_suite(trial, request.scale, request.out, request.override)
    say(f"gate of {suite.id}, on seed {suite.gate_seed}, which is not reported")
    choice = choose_runs(plan.runs, request.hours, request.jobs)
    if request.dry_run:
        if request.as_json:
            print_json({"gate_of": suite.id, **choice.facts})
        return
    request.run_all(choice.now)
    result = gate_result(plan)
    if request.as_json:
        print_json({"suite": suite.id, "seed": suite.gate_seed, **result.describe()})
        return
    met = {True: "met", False: "not met", None: "not known"}[result.met]
    out.print(f"gate of {suite.id}: {met}: {result.why}", highlight=False, markup=False)


def plan_first(request: Request) -> RunAll:
    """Runs a table's runs after a plan of them was shown; see `choose_runs`."""
    import typer

    def run(plans: Sequence[PlannedRun]) -> None:
        choice = choose_runs(plans, request.hours, request.jobs)
        if request.dry_run:
            if request.as_json:
                print_json(choice.facts)
            raise typer.Exit
        request.run_all(choice.now)
        if choice.left:
            say(f"{choice.left} runs are left; the same command continues")
            raise typer.Exit

    return run
