"""`fedloom deploy ...`: the same experiment across real sites, over Flower."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedloom.cli import options as o
from fedloom.cli.output import facts, out, print_json, say, table, user_errors

if TYPE_CHECKING:
    from fedloom.deploy.layout import ServerFolder
    from fedloom.deploy.run_control import RunState

app = typer.Typer(
    help="Real sites: set up, start, run and watch a deployment.", no_args_is_help=True
)
Deployment = Annotated[
    Path, typer.Argument(metavar="DIR", help="A deployment, as made by deploy init.")
]
RunName = Annotated[
    str | None,
    typer.Option(
        "--run", help="Name of the run; default: that of the deployment.", show_default=False
    ),
]
ReaderOption = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        help="Option for the reader of the data, as for fedloom data add, e.g. target=ill.",
        show_default=False,
    ),
]


@app.command()
@user_errors
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")],
    sites: Annotated[str, typer.Option("--sites", help="Names of the sites, separated by commas.")],
    config: o.ConfigFile = None,
    address: Annotated[
        str,
        typer.Option("--address", help="Where sites reach the server: HOST:PORT."),
    ] = "127.0.0.1:9092",
    set_: o.Set = None,
    debug: o.Debug = False,
) -> None:
    """Make certificates, keys, a start kit for every site, and the Flower app.

    Example: fedloom deploy init hospitals --config settings.toml --sites north,south,west
    """
    flags: dict[str, Any] = {}
    from fedloom.deploy.layout import Address
    from fedloom.deploy.provision import for_sites, provision
    from fedloom.settings.config import load

    names = tuple(name.strip() for name in sites.split(",") if name.strip())
    where = Address.parse(address)
    settings, notes = for_sites(load(o.gather(config, None, flags, set_)))
    provision(folder, settings, names, where)
    for note in notes:
        say(f"note: {note}")
    if where.is_loopback:
        say(f"note: only this machine reaches {where}; for other machines give --address HOST:PORT")
    out.print(f"{folder}: {len(names)} start kits in {folder / 'kits'}", markup=False)
    out.print(f"next: read {folder / 'README.md'}", markup=False)


@app.command()
@user_errors
def server(
    folder: Deployment,
    bind: Annotated[
        str | None,
        typer.Option(
            "--bind",
            help="Address to listen on; default: loopback if the sites' address is, else all.",
            show_default=False,
        ),
    ] = None,
    debug: o.Debug = False,
) -> None:
    """Start the server and keep it running; Ctrl-C ends it.

    Example: fedloom deploy server hospitals
    """
    from fedloom.deploy.layout import ServerFolder
    from fedloom.deploy.server import run_server
    from fedloom.deploy.supervise import until_stopped

    found = ServerFolder.find(folder)
    with until_stopped() as stopped:
        run_server(found, bind, say, stopped)


@app.command()
@user_errors
def node(
    kit: Annotated[Path, typer.Argument(metavar="KIT", help="The site's start kit.")],
    data: Annotated[Path, typer.Option("--data", help="The site's data: a file or a folder.")],
    option: ReaderOption = None,
    debug: o.Debug = False,
) -> None:
    """Start a site and keep it running; Ctrl-C ends it.

    Example: fedloom deploy node kits/north --data /data/north.csv --option target=ill
    """
    from fedloom.deploy.layout import Kit
    from fedloom.deploy.node import run_node
    from fedloom.deploy.supervise import until_stopped

    found = Kit.find(kit)
    with until_stopped() as stopped:
        run_node(found, data, option or (), say, stopped)


@app.command(name="run")
@user_errors
def run_(
    folder: Deployment,
    name: RunName = None,
    json_: o.Json = False,
    debug: o.Debug = False,
) -> None:
    """Train across the sites, or resume; Ctrl-C finishes the round and stops the run.

    Example: fedloom deploy run hospitals
    """
    from fedloom.deploy.layout import ServerFolder

    found = ServerFolder.find(folder)
    run = name or found.name
    again = f"fedloom deploy run {folder}" + (f" --run {name}" if name else "")
    end(follow(found, run), again)
    show_result(found.runs / run, json_)


@app.command()
@user_errors
def status(
    folder: Deployment, name: RunName = None, json_: o.Json = False, debug: o.Debug = False
) -> None:
    """Show which sites are connected, and how far the run is.

    Example: fedloom deploy status hospitals
    """
    from dataclasses import asdict

    from fedloom.deploy.layout import ServerFolder
    from fedloom.deploy.status import read_status

    found = ServerFolder.find(folder)
    now = read_status(found, name or found.name)
    if json_:
        print_json(asdict(now))
        return
    shown = {
        "server": f"{'answers' if now.server else 'does not answer'} ({found.address})",
        "run": f"{now.run}: {now.state or 'not started'}",
        "round": f"{now.round} of {now.rounds}" if now.rounds else "-",
    }
    out.print(facts(shown))
    rows = [
        [
            line.site,
            "connected" if line.connected else "not connected",
            "never" if line.seen is None else f"{line.seen:.0f} s ago",
            "" if line.round is None else str(line.round),
            line.problem or "",
        ]
        for line in now.sites
    ]
    out.print(table(["site", "", "last seen", "last round", "problem"], rows))


def follow(folder: ServerFolder, run: str) -> RunState:
    """Submit a run, unless it is going on already, and show its rounds until it ends."""
    from fedloom.cli.output import err
    from fedloom.deploy.run_progress import RunProgress
    from fedloom.deploy.submit import Follower, check_run_name, control_of, submit
    from fedloom.experiment.interrupt import graceful_interrupt

    check_run_name(run)
    control = control_of(folder, run)
    state = control.read()
    with RunProgress(folder.runs / run, err) as progress:
        running = state is not None and state.is_alive
        follower = Follower(folder, run, say, progress.look)
        submission = None if running else submit(folder, run)
        with graceful_interrupt(say) as interrupted:
            follower.on_poll = lambda: control.ask_to_stop() if interrupted() else None
            return follower.follow(submission)


def end(state: RunState, again: str) -> None:
    """Leave the command as the run ended; return only if it is finished."""
    if state.state == "stopped":
        say(f"{state.message}; continue with: {again}")
        raise typer.Exit(130)
    if state.state == "failed":
        say(f"{'error' if state.exit_code == 2 else 'failed'}: {state.message}")
        raise typer.Exit(state.exit_code or 1)


def show_result(path: Path, as_json: bool) -> None:
    """Print a finished run as `fedloom run` does."""
    from fedloom.cli.run import print_result
    from fedloom.experiment.stored_run import read_run

    stored = read_run(path)
    assert stored.result is not None
    print_result(stored.result, path, stored.config, as_json)
