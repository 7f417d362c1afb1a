"""`fedloom reproduce PAPER/TABLE`: a table of a paper, our figures next to the printed ones.

With --claims: what the papers claim, with the verdict of the figures we have.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedloom.cli import options as o
from fedloom.cli.claims_view import show_claims
from fedloom.cli.compare import Jobs, Seeds, scheduler
from fedloom.cli.curve_options import split
from fedloom.cli.output import user_errors
from fedloom.cli.paper_table_view import show_table

if TYPE_CHECKING:
    from fedloom.settings.paper_table import Table


@user_errors
def reproduce(
    table: Annotated[
        str | None,
        typer.Argument(
            help="A paper's table, for example fedalign/table1; with --claims a paper.",
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
    seeds: Seeds = 1,
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
    out_: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Folder of the runs; default: runs/TABLE-SCALE. Existing runs are resumed.",
            show_default=False,
        ),
    ] = None,
    trust: o.Trust = False,
    json_: o.Json = False,
    verbose: o.Verbose = False,
    debug: o.Debug = False,
) -> None:
    """Run a table of a paper and print our figures next to the printed ones.

    Example: fedloom reproduce fedalign/table1 --rows fedavg,fedalign
    """
    flags = locals()
    if claims:
        show_claims(table, json_)
        return
    with scheduler(jobs, engine, verbose) as run_all:
        chosen_scale = o.scale_of(flags)
        chosen = _table(table).at(chosen_scale, split(rows), split(columns))
        folder = out_ or Path("runs") / f"{chosen.name.replace('/', '-')}-{chosen_scale}"
        show_table(
            chosen,
            chosen_scale,
            seeds,
            folder,
            lambda raw: o.lay_over(raw, config, flags, set_),
            run_all,
            json_,
        )


def _table(name: str | None) -> Table:
    from fedloom.core.errors import UserError, unknown_name
    from fedloom.settings.presets import names, preset

    if name is None:
        raise UserError("name a table, such as fedalign/table1 (see: fedloom presets), or --claims")
    if name not in names():
        raise unknown_name("table", name, [n for n in names() if "/" in n], see="fedloom presets")
    found = preset(name).table
    if found is None:
        raise UserError(
            f"preset '{name}' is a single run, not a paper's table; "
            f"run it with: fedloom run --preset {name}"
        )
    return found
