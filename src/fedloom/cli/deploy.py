"""`fedloom deploy ...`: the same experiment across real sites, over Flower."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedloom.cli import options as o
from fedloom.cli.deploy_view import (
    end,
    follow,
    kept_or_temporary,
    reader_options,
    run_trial,
    show_result,
    show_status,
    terminated_like_interrupted,
)
from fedloom.cli.output import out, print_json, say, user_errors

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
    else:
        show_status(now, str(found.address))


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
    optimiser: o.Optimiser = None,
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

    Everything is as in a real deployment, with TLS and keys, but on loopback.
    All processes are ended at the end. Without --out nothing is kept.

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
    if out_ is None:
        say("the deployment and its run were deleted; keep them with --out DIR")
