"""`fedloom reproduce`: a table of a paper, or the runs that decide its claims.

With --claims: what the papers claim, with the verdict of the figures we have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedloom.cli import options as o
from fedloom.cli.claims_view import show_claims
from fedloom.cli.compare import Jobs, scheduler
from fedloom.cli.curve_options import split
from fedloom.cli.output import user_errors
from fedloom.cli.paper_table_view import show_table
from fedloom.cli.suite_view import Request, plan_first, reproduce_suites, try_gate
from fedloom.cli.sweep import Memory, memory_limit

if TYPE_CHECKING:
    from fedloom.claims.suites import Suite
    from fedloom.settings.paper_table import Table

OF_TABLES = ("rows", "columns", "seed")  # options without a meaning for suites
OF_SUITES = ("results", "commit")  # options without a meaning for a single table
SHARED_FOLDER = Path("runs/reproduce")  # of all suites: they share runs


def _option(*names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, show_default=False, **more)


@user_errors
def reproduce(
    table: Annotated[
        str | None,
        typer.Argument(
            help="A paper's table such as fedalign/table1, a paper, or a claim such as "
            "fedmlb/over-fedavg; with --claims a paper.",
            show_default=False,
        ),
    ] = None,
    scale: o.ScaleName = None,
    rows: Annotated[
        str | None,
        typer.Option("--rows", help="Only these rows, separated by commas.", show_default=False),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns", help="Only these columns, separated by commas.", show_default=False
        ),
    ] = None,
    claims: Annotated[
        bool,
        typer.Option("--claims", help="List the papers' claims with our verdicts; runs nothing."),
    ] = False,
    suite: Annotated[
        str | None, _option("--suite", help="The runs of this suite, such as mlb50.")
    ] = None,
    gate: Annotated[
        str | None,
        _option("--gate", help="Try the gate of this suite on a seed that is not reported."),
    ] = None,
    seeds: Annotated[
        int | None,
        _option(
            "--seeds",
            min=1,
            max=1000,
            help="Number of seeds; default: 1 for a table, for a suite those fixed beforehand.",
        ),
    ] = None,
    hours: Annotated[
        float | None,
        _option("--hours", min=0, help="Begin only runs that should be done after this time."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the runs and how long they take; run nothing.")
    ] = False,
    config: o.ConfigFile = None,
    data: o.DataName = None,
    model: o.ModelName = None,
    clients: o.ClientCount = None,
    per_round: o.PerRound = None,
    rounds: o.Rounds = None,
    seed: o.Seed = None,
    engine: o.Engine = None,
    workers: o.Workers = None,
    device: o.Device = None,
    set_: o.Set = None,
    jobs: Jobs = 1,
    memory: Memory = None,
    out_: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Folder of the runs; default: runs/TABLE-SCALE, for suites runs/reproduce. "
            "Existing runs are resumed.",
            show_default=False,
        ),
    ] = None,
    results: Annotated[
        Path | None,
        _option(
            "--results",
            help="Folder for the result file of each suite, with the settings and the log of each "
            "row in a folder beside it; default: OUT/results.",
        ),
    ] = None,
    commit: Annotated[
        str | None,
        _option(
            "--commit",
            help="The commit that the runs were made with, for the result file; default: the "
            "present one, if the source is the same.",
        ),
    ] = None,
    trust: o.Trust = False,
    json_: o.Json = False,
    verbose: o.Verbose = False,
    debug: o.Debug = False,
) -> None:
    """Run a table of a paper, or what decides its claims, and print it next to the paper's.

    Example: fedloom reproduce fedalign/table1 --rows fedavg,fedalign
    """
    flags = locals()
    if claims:
        show_claims(table, json_)
        return
    forgive = _never if _is_table(table, suite, gate) else _gave_up
    with scheduler(jobs, engine, verbose, memory_limit(memory, jobs), forgive) as run_all:
        request = Request(
            scale=o.scale_of(flags),
            out=out_ or SHARED_FOLDER,
            override=lambda raw: o.lay_over(raw, config, flags, set_),
            run_all=run_all,
            jobs=jobs,
            hours=hours,
            dry_run=dry_run,
            results=results,
            commit=commit,
            as_json=json_,
        )
        if gate is not None:
            _refuse(flags, ("table", "suite", "seeds", *OF_TABLES, *OF_SUITES), "--gate")
            try_gate(_named_suite(gate), request)
        elif (chosen := _suites(table, suite, seeds)) is not None:
            _refuse(flags, OF_TABLES, "a suite, whose rows, columns and seeds are fixed")
            reproduce_suites(chosen, request)
        else:
            _refuse(flags, OF_SUITES, "a single table")
            _reproduce_table(_table(table), request, seeds or 1, rows, columns, out_)


def _is_table(name: str | None, suite: str | None, gate: str | None) -> bool:
    from fedloom.settings.presets import names

    return suite is None and gate is None and (name is None or name in names())


def _never(path: Path) -> bool:
    """A run of a table that fails ends the command."""
    return False


def _gave_up(path: Path) -> bool:
    """A run of a suite that diverges does not hold up the others."""
    from fedloom.experiment.stored_run import gave_up

    return gave_up(path)


def _refuse(flags: Mapping[str, Any], names: Sequence[str], with_what: str) -> None:
    """Raise if one of these options was given, which would have no effect."""
    from fedloom.core.errors import UserError

    for name in names:
        if flags[name] is not None:
            option = f"'{flags[name]}'" if name == "table" else f"--{name} {flags[name]}"
            raise UserError(f"{option} does not go together with {with_what}; leave it out")


def _reproduce_table(
    whole: Table,
    request: Request,
    seeds: int,
    rows: str | None,
    columns: str | None,
    folder: Path | None,
) -> None:
    chosen = whole.at(request.scale, split(rows), split(columns))
    folder = folder or Path("runs") / f"{chosen.name.replace('/', '-')}-{request.scale}"
    run_all = request.run_all
    if request.dry_run or request.hours is not None:
        run_all = plan_first(request)
    show_table(chosen, request.scale, seeds, folder, request.override, run_all, request.as_json)


def _named_suite(name: str) -> Suite:
    from fedloom.claims.suites import suite

    return suite(name)


def _suites(name: str | None, suite: str | None, seeds: int | None) -> list[Suite] | None:
    """The suites that were asked for; None if it was a table."""
    from fedloom.claims.plan_suite import suites_for, with_seeds
    from fedloom.core.errors import UserError

    if suite is not None:
        if name is not None:
            raise UserError(f"'{name}' and --suite {suite} name two things to run; give one")
        return [with_seeds(_with_runs(_named_suite(suite)), seeds)]
    if name is None or _is_table(name, suite, None):
        return None
    return [with_seeds(each, seeds) for each in suites_for(name)]


def _with_runs(suite: Suite) -> Suite:
    from fedloom.core.errors import UserError

    if not suite.runs:
        raise UserError(f"suite '{suite.id}' has no runs; its figures come from: {suite.commands}")
    return suite


def _table(name: str | None) -> Table:
    from fedloom.core.errors import UserError
    from fedloom.settings.presets import preset

    if name is None:
        raise UserError("name a table, such as fedalign/table1 (see: fedloom presets), or --claims")
    found = preset(name).table
    if found is None:
        raise UserError(
            f"preset '{name}' is a single run, not a paper's table; "
            f"run it with: fedloom run --preset {name}"
        )
    return found
