"""`fedloom watch RUN...`: the report page of runs while they go on."""

from __future__ import annotations

from typing import Annotated

import typer

from fedloom.cli import curve_options as c
from fedloom.cli import options as o
from fedloom.cli.output import say, user_errors


@user_errors
def watch(
    folders: o.RunFolders,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0: any free one.")
    ] = 0,
    target: c.Target = None,
    at: c.At = None,
    ema: c.Ema = None,
    ema_start: c.EmaStart = None,
    debug: o.Debug = False,
) -> None:
    """Serve the report page of runs on this machine, and update it while they go on.

    The page is the one of `fedloom report --html`. Only this machine can reach it. Ctrl-C ends it.
    A folder of `compare` or `sweep` stands for all runs inside it, also those that begin later.

    Example: fedloom watch runs/fedavg-s0 runs/fedprox-s0
    """
    flags = locals()
    options = c.options_from(flags)
    from fedloom.experiment.stored_run import read_run
    from fedloom.reports.live import ADDRESS, LivePage, open_server
    from fedloom.runs.folder_layout import each_run

    for folder in each_run(folders):
        read_run(folder)  # a wrong folder is an error now, not a message on the page
    with open_server(LivePage(folders, options), port) as server:
        say(f"http://{ADDRESS}:{server.server_port}/ (Ctrl-C ends it)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("stopped")
