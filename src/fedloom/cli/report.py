"""`fedloom report RUN...`: existing runs side by side, finished or not."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedloom.cli import curve_options as c
from fedloom.cli import options as o
from fedloom.cli.comparison_view import Plots, show
from fedloom.cli.output import say, user_errors


@user_errors
def report(
    folders: Annotated[list[Path], typer.Argument(help="Run folders, finished or not.")],
    target: c.Target = None,
    at: c.At = None,
    ema: c.Ema = None,
    ema_start: c.EmaStart = None,
    client: Annotated[
        int | None,
        typer.Option("--client", help="Plot the classes of this client.", show_default=False),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            help="Plot accuracy against this setting, such as method.fedafa.lam.",
            show_default=False,
        ),
    ] = None,
    compute: Annotated[
        bool, typer.Option("--compute", help="Plot accuracy against compute, in MACs.")
    ] = False,
    out_: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for plots; without it none.", show_default=False),
    ] = None,
    trust: o.Trust = False,
    json_: o.Json = False,
    debug: o.Debug = False,
) -> None:
    """Compare existing runs, finished or not.

    Example: fedloom report runs/fedavg-s0 runs/fedprox-s0 --out plots
    """
    from fedloom.core.errors import UserError

    flags = locals()
    options, wanted = c.options_from(flags), Plots(client, by, compute)
    if out_ is None and (flag := wanted.first_flag()) is not None:
        raise UserError(f"{flag} asks for a plot, and there is no folder for it; add --out FOLDER")
    from fedloom.experiment.stored_run import read_run

    o.trust_runs(trust, *folders)
    for path in folders:
        run = read_run(path)
        if run.result is None and run.history:
            say(f"note: '{path}' is not finished; these are its first {len(run.history)} rounds")
    show("run", {str(path): [path] for path in folders}, options, out_, json_, wanted)
