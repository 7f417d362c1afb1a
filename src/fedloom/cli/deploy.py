"""`fedloom deploy ...`: the same experiment across real sites, over Flower."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedloom.cli import options as o
from fedloom.cli.output import facts, out, print_json, say, table, user_errors

if TYPE_CHECKING:
    from fedloom.deploy.layout import ServerFolder
    from fedloom.deploy.run_control import RunState
    from fedloom.settings.config import Config

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
        help="Option for the reader of the data, as for fedloom data add, e.g. target=ill; a site "
        "can change it in its site.toml.",
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
    option: ReaderOption = None,
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
    provision(folder, settings, names, where, reader_options(option))
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
    debug: o.Debug = False,
) -> None:
    """Start a site and keep it running; Ctrl-C ends it.

    Example: fedloom deploy node kits/north --data /data/north.csv
    """
    from fedloom.deploy.layout import Kit
    from fedloom.deploy.node import run_node
    from fedloom.deploy.supervise import until_stopped

    found = Kit.find(kit)
    with until_stopped() as stopped:
        run_node(found, data, say, stopped)


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


@app.command(name="try")
@user_errors
def try_(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A folder with a file or folder per site.")
    ],
    config: o.ConfigFile = None,
    method: o.MethodName = None,
    server: o.ServerName = None,
    model: o.ModelName = None,
    rounds: o.Rounds = None,
    per_round: o.PerRound = None,
    lr: o.LearningRate = None,
    batch: o.BatchSize = None,
    epochs: o.Epochs = None,
    seed: o.Seed = None,
    option: ReaderOption = None,
    set_: o.Set = None,
    out_: Annotated[
        Path | None,
        typer.Option("--out", help="Keep the deployment in this new folder.", show_default=False),
    ] = None,
    json_: o.Json = False,
    debug: o.Debug = False,
) -> None:
    """Set up a server and a site per file on this machine, train, and compare with a simulation.

    Everything is as in a real deployment, with TLS and keys, but on loopback. All processes are
    ended at the end. Without --out nothing is kept.

    Example: fedloom deploy try docs/examples/hospitals --option target=ill --model 'mlp(width=16)' --per-round 4 --rounds 5
    """  # noqa: E501 (the example is one line)
    flags = locals()
    from fedloom.deploy.flower_extra import check_flower
    from fedloom.deploy.provision import for_sites
    from fedloom.deploy.trial import site_sources
    from fedloom.settings.config import load

    check_flower()
    sources, reader = site_sources(folder), reader_options(option)
    settings, _ = for_sites(load(o.gather(config, None, flags, set_)))
    with terminated_like_interrupted(), kept_or_temporary(out_) as place:
        run_trial(place, settings, sources, reader, json_)


def run_trial(
    folder: Path,
    settings: Config,
    sources: Mapping[str, Path],
    reader: Mapping[str, Any],
    as_json: bool,
) -> None:
    """Train on a deployment of this machine, print the result, and compare the weights."""
    from fedloom.core.errors import RunError
    from fedloom.deploy.trial import repeat_in_process, running, set_up

    server = set_up(folder, settings, sources, reader)
    say(f"starting a server and {len(sources)} sites: {', '.join(sources)}")
    with running(server, sources, say) as look:
        say("all are running; handing the run to Flower")
        end(follow(server, server.name, look), f"fedloom deploy run {folder}")
        say("stopping the server and the sites")
    run = server.runs / server.name
    show_result(run, as_json)
    here, there = repeat_in_process(run, sources, reader), weights_of(run)
    if here != there:
        raise RunError(f"the weights of the same run in this process differ: {here}")
    say("the same run in this process, without Flower, gives the same weights, bit for bit")


def reader_options(option: list[str] | None) -> dict[str, Any]:
    """The options for the readers of the sites' data."""
    from fedloom.settings.overrides import assignment

    return dict(assignment(text, "--option", "target=ill") for text in option or ())


def follow(folder: ServerFolder, run: str, look: Callable[[], None] = lambda: None) -> RunState:
    """Submit a run, unless it is going on already, and show its rounds until it ends.

    look: called again and again.
    """
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

            def poll() -> None:
                look()
                if interrupted():
                    control.ask_to_stop()

            follower.on_poll = poll
            return follower.follow(submission)


def end(state: RunState, again: str) -> None:
    """Leave the command as the run ended; return only if it is finished."""
    if state.state == "stopped":
        say(f"{state.message}; continue with: {again}")
        raise typer.Exit(130)
    if state.state == "failed":
        say(f"{'error' if state.exit_code == 2 else 'failed'}: {state.message}")
        raise typer.Exit(state.exit_code or 1)


def weights_of(path: Path) -> str | None:
    """The sha256 of a finished run's weights."""
    from fedloom.experiment.stored_run import read_run

    result = read_run(path).result
    return None if result is None else result.weights_sha256


@contextmanager
def kept_or_temporary(path: Path | None) -> Iterator[Path]:
    """The folder of a trial: this one, or one that is deleted afterwards."""
    if path is not None:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="fedloom-") as parent:
        yield Path(parent) / "trial"


@contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """Inside, SIGTERM and a closed terminal do what Ctrl-C does, so that everything is ended."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def show_result(path: Path, as_json: bool) -> None:
    """Print a finished run as `fedloom run` does."""
    from fedloom.cli.run import print_result
    from fedloom.experiment.stored_run import read_run

    stored = read_run(path)
    assert stored.result is not None
    print_result(stored.result, path, stored.config, as_json)
