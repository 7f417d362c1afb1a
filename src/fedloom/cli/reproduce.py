"""`fedloom reproduce`: a table of a paper, or the runs that decide its claims.

With --claims: what the papers claim, with the verdict of the figures we have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedloom.cli import options as o
from fedloom.cli import reproduce_options as r
from fedloom.cli.claims_view import show_claims
from fedloom.cli.compare import Jobs, scheduler
from fedloom.cli.cost_commands import as_lines, check_has_runs
from fedloom.cli.curve_options import split
from fedloom.cli.output import user_errors
from fedloom.cli.paper_plan_view import cells_of_suites, cells_of_table, check_paper_scale
from fedloom.cli.paper_table_view import reproduce_table
from fedloom.cli.suite_view import Request, reproduce_suites, try_gate
from fedloom.cli.sweep import Memory, memory_limit

if TYPE_CHECKING:
    from fedloom.claims.suites import Suite
    from fedloom.settings.paper_table import Table

OF_CLAIMS = ("table", "claims", "json_", "verbose", "debug")  # the others say what to run, or how
OF_TABLES = ("rows", "columns")  # options without a meaning for suites
OF_SUITES = ("results", "commit")  # options without a meaning for a single table
DEFAULTS = {"jobs": 1}  # of options that are not None or False by themselves
SHARED_FOLDER = Path("runs/reproduce")  # of all suites: they share runs


@user_errors
def reproduce(
    table: r.TableName = None,
    scale: o.ScaleName = None,
    rows: r.Rows = None,
    columns: r.Columns = None,
    claims: r.Claims = False,
    suite: r.SuiteName = None,
    gate: r.GateName = None,
    seeds: r.Seeds = None,
    hours: r.Hours = None,
    dry_run: r.DryRun = False,
    config: o.ConfigFile = None,
    data: o.DataName = None,
    model: o.ModelName = None,
    clients: o.ClientCount = None,
    per_round: o.PerRound = None,
    rounds: o.Rounds = None,
    seed: r.OneSeed = None,
    engine: o.Engine = None,
    workers: o.Workers = None,
    device: o.Device = None,
    set_: o.Set = None,
    jobs: Jobs = 1,
    memory: Memory = None,
    out_: r.Out = None,
    results: r.Results = None,
    commit: r.Commit = None,
    trust: o.Trust = False,
    json_: o.Json = False,
    verbose: o.Verbose = False,
    debug: o.Debug = False,
) -> None:
    """Run a table of a paper, or the runs that decide its claims, and print it next to the paper's.

    Example: fedloom reproduce fedalign/table1 --rows fedavg,fedalign
    """
    flags = locals()
    if claims:
        _refuse(flags, [name for name in flags if name not in OF_CLAIMS], "--claims")
        show_claims(table, json_)
        return
    with scheduler(jobs, engine, verbose, memory_limit(memory, jobs), _gave_up) as run_all:
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
        if request.scale == "paper":
            _check_no_suite(suite or gate)
            if dry_run:
                _refuse(flags, ("hours",), "a dry run at the paper's scale, which times nothing")
        if gate is not None:
            _refuse(flags, ("table", "suite", "seeds", "seed", *OF_TABLES, *OF_SUITES), "--gate")
            try_gate(_with_runs(_named_suite(gate)), request)
        elif (chosen := _suites(table, suite, seeds, seed)) is not None:
            _refuse(flags, OF_TABLES, "a suite, whose rows and columns are fixed")
            _reproduce_suites(table, chosen, request)
        else:
            _refuse(flags, OF_SUITES, "a single table")
            part = _table(table).at(request.scale, split(rows), split(columns))
            folder = out_ or Path("runs") / f"{part.name.replace('/', '-')}-{request.scale}"
            _reproduce_table(part, request, seeds or 1, folder)


def _check_no_suite(name: str | None) -> None:
    """Raise for a suite at the paper's scale: its name stands for the scale it was planned with."""
    from fedloom.core.errors import UserError

    if name is not None:
        raise UserError(
            f"suite '{name}' has its own scale; leave out --scale paper, or name a paper, a table "
            "or a claim instead of the suite"
        )


def _reproduce_suites(name: str | None, chosen: Sequence[Suite], request: Request) -> None:
    """Run suites after the check of all of them, at the paper's scale of every cell."""
    from fedloom.claims.commits import check_commit

    if request.commit is not None:
        check_commit(request.commit)
    if name is not None and request.scale == "paper":
        check_paper_scale(name, list(cells_of_suites(chosen, request)), request)
        if request.dry_run:
            return
    _check_data(chosen, request)
    reproduce_suites(chosen, request)


def _check_data(chosen: Sequence[Suite], request: Request) -> None:
    """Raise with all data sets that are missing, whichever suite needs them."""
    from fedloom.claims.plan_suite import suite_settings
    from fedloom.core.errors import raise_all
    from fedloom.reports.paper_table import missing_data
    from fedloom.settings.config import load

    every = (cell[3] for suite in chosen for cell in suite_settings(suite, request.scale))
    needed = {load(request.override(settings)).data.name for settings in every}
    raise_all(missing_data(needed), "data")


def _reproduce_table(part: Table, request: Request, seeds: int, folder: Path) -> None:
    """Run a table, at the paper's scale after the check of every cell."""
    if request.scale == "paper":
        check_paper_scale(part.name, list(cells_of_table(part, seeds, request)), request)
        if request.dry_run:
            return
    reproduce_table(part, request, seeds, folder)


def _gave_up(path: Path) -> bool:
    """A run that diverges does not hold up the others."""
    from fedloom.experiment.stored_run import gave_up

    return gave_up(path)


def _refuse(flags: Mapping[str, Any], names: Sequence[str], with_what: str) -> None:
    """Raise if one of these options was given, which would have no effect."""
    from fedloom.core.errors import UserError

    for name in names:
        is_left_out = flags[name] is None or flags[name] is False  # 0 is a value
        if not is_left_out and flags[name] != DEFAULTS.get(name):
            option = f"'{flags[name]}'" if name == "table" else _as_typed(name, flags[name])
            raise UserError(f"{option} cannot be combined with {with_what}; leave it out")


def _as_typed(name: str, value: Any) -> str:
    """An option with its value: --seeds 3, --dry-run, --set rounds=2."""
    option = f"--{name.rstrip('_').replace('_', '-')}"
    if value is True:
        return option
    return f"{option} {' '.join(value) if isinstance(value, list) else value}"


def _named_suite(name: str) -> Suite:
    from fedloom.claims.suites import suite

    return suite(name)


def _suites(
    name: str | None, suite: str | None, seeds: int | None, seed: int | None
) -> list[Suite] | None:
    """The suites that were asked for; None if it was a table."""
    from fedloom.claims.plan_suite import only_seed, suites_for, with_seeds
    from fedloom.core.errors import UserError
    from fedloom.settings.presets import names

    if suite is not None:
        if name is not None:
            raise UserError(f"'{name}' and --suite {suite} name two things to run; give one")
        return [only_seed(with_seeds(_with_runs(_named_suite(suite)), seeds), seed)]
    if name is None or name in names():
        return None
    check_has_runs(name)
    return [only_seed(with_seeds(each, seeds), seed) for each in suites_for(name)]


def _with_runs(suite: Suite) -> Suite:
    from fedloom.core.errors import UserError

    if not suite.runs:
        said = f"suite '{suite.id}' has no runs; its figures come from these commands"
        raise UserError(f"{said}:\n{as_lines(suite.commands)}")
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
