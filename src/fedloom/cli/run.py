"""`fedloom run` and `fedloom resume`: one run from its first round to its last, or on from where it stopped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedloom.cli import options as o
from fedloom.cli.output import facts, megabytes, out, print_json, rounds_to, say, user_errors
from fedloom.cli.prefork import prefork
from fedloom.cli.progress import watching

if TYPE_CHECKING:
    from fedloom.experiment.prepare import PreparedRun
    from fedloom.runs.folder import RunFolder
    from fedloom.settings.config import Config

Out = Annotated[
    Path | None,
    typer.Option(
        "--out", help="Folder of the run; default: runs/METHOD-sSEED.", show_default=False
    ),
]
RunDir = Annotated[Path, typer.Argument(help="The folder of a run.")]


@user_errors
def run(
    config: o.ConfigFile = None,
    preset: o.PresetName = None,
    row: o.RowName = None,
    column: o.ColumnName = None,
    scale: o.ScaleName = None,
    method: o.MethodName = None,
    server: o.ServerName = None,
    data: o.DataName = None,
    clients: o.ClientCount = None,
    partition: o.Partition = None,
    model: o.ModelName = None,
    rounds: o.Rounds = None,
    per_round: o.PerRound = None,
    seed: o.Seed = None,
    engine: o.Engine = None,
    workers: o.Workers = None,
    device: o.Device = None,
    set_: o.Set = None,
    rounds_of: Annotated[
        Path | None,
        typer.Option(
            "--rounds-of",
            help="A finished run with the same rounds: take them over, do what follows.",
            show_default=False,
        ),
    ] = None,
    out_: Out = None,
    json_: o.Json = False,
    debug: o.Debug = False,
) -> None:
    """Train once. Example: fedloom run --method fedprox --rounds 3 --clients 20 --per-round 5 --seed 1"""
    with prefork(engine) as fork_server:
        from fedloom.experiment.build import resolve_auto, resolve_device
        from fedloom.experiment.prepare import prepare
        from fedloom.experiment.reuse import check_same_rounds, copy_rounds
        from fedloom.runs.folder import RunFolder
        from fedloom.settings.config import load

        settings = load(o.gather(config, preset, locals(), set_))
        path = out_ or free_folder(settings)
        if rounds_of is not None:
            check_same_rounds(resolve_auto(settings), rounds_of)
        with (
            prepare(settings, fork_server=fork_server) as prepared,
            RunFolder.create(
                path, resolve_auto(settings).text(), resolve_device(settings.device)
            ) as folder,
        ):
            if rounds_of is not None:
                copy_rounds(folder, rounds_of)
            finish(prepared, folder, json_)


@user_errors
def resume(
    folder: RunDir,
    json_: o.Json = False,
    client: Annotated[
        int | None,
        typer.Option(
            "--client", help="Replay only this client of the next round.", show_default=False
        ),
    ] = None,
    engine: o.Engine = None,
    workers: o.Workers = None,
    debug: o.Debug = False,
) -> None:
    """Go on with a run that stopped, from its last checkpoint. Example: fedloom resume runs/fedprox-s1"""
    with prefork(engine) as fork_server:
        from fedloom.experiment.open_engine import resume_config
        from fedloom.experiment.prepare import prepare

        with open_run(folder) as (opened, settings):
            there = _elsewhere(resume_config(settings, folder), engine, workers)
            with prepare(there, fork_server=fork_server) as prepared:
                finish(prepared, opened, json_) if client is None else replay(
                    prepared, opened, client, json_
                )


def _elsewhere(settings: Config, engine: str | None, workers: int | None) -> Config:
    """The same run on another engine, where one is named; exact ones have the same result, so that the folder need not know."""
    from fedloom.settings.config import load

    changes = {
        name: value
        for name, value in (("engine", engine), ("workers", workers))
        if value is not None
    }
    return load({**settings.model_dump(mode="json"), **changes})


@contextmanager
def open_run(path: Path) -> Iterator[tuple[RunFolder, Config]]:
    """A run that is there, open on its device, and the settings it was made with."""
    from fedloom.experiment.build import resolve_device
    from fedloom.runs.folder import CONFIG, RunFolder
    from fedloom.settings.config import load_file

    with RunFolder.read_only(path) as look:
        look.check_config()
    settings = load_file(path / CONFIG)
    with RunFolder.open(path, resolve_device(settings.device)) as folder:
        yield folder, settings


def free_folder(settings: Config) -> Path:
    """runs/METHOD-sSEED, or the next free name behind it."""
    base = (
        Path("runs")
        / f"{''.join(c if c.isalnum() or c in '-+' else '_' for c in settings.title)}-s{settings.seed}"
    )
    number, path = 1, base
    while path.exists():
        number += 1
        path = base.with_name(f"{base.name}-{number}")
    return path


def finish(
    prepared: PreparedRun, folder: RunFolder, as_json: bool, title: str | None = None
) -> None:
    """Run to the end and print the result; under a title of its own, only the progress."""
    from fedloom.engines.inprocess import ClientError
    from fedloom.experiment.interrupt import graceful_interrupt
    from fedloom.experiment.train import Interrupted
    from fedloom.experiment.train import run as weave

    settings = prepared.config
    try:
        with (
            graceful_interrupt(say) as stop,
            watching(title or settings.title, settings.rounds) as watch,
        ):
            result = weave(prepared, folder, watch, stop, say) | {"out": str(folder.path)}
    except Interrupted as stopped:
        say(f"{stopped}; go on with: fedloom resume {folder.path}")
        raise typer.Exit(130) from None
    except ClientError as error:
        say(
            f"replay just this client with: fedloom resume {folder.path} --client {error.client} --debug"
        )
        raise
    if as_json:
        print_json(result)
    elif title is None:
        out.print(_shown(result, settings.evaluate.target))


def replay(prepared: PreparedRun, folder: RunFolder, client: int, as_json: bool) -> None:
    """Play one client of the next round and say what it answers; the run is left as it is."""
    from fedloom.core.errors import UserError
    from fedloom.experiment.train import replay_client

    if not 0 <= client < len(prepared.clients):
        raise UserError(
            f"--client {client} is not one of the {len(prepared.clients)} clients; take a number from 0 to {len(prepared.clients) - 1}"
        )
    answer = replay_client(prepared, folder, client)
    if as_json:
        print_json(answer)
    else:
        out.print(facts(answer))


def _shown(result: dict[str, Any], target: float | None) -> Any:
    shown = {
        "method": result["method"],
        "accuracy": f"{result['accuracy']:.4f}",
        "rounds": result["rounds"],
        "seconds": result["seconds"],
        "sent": f"{megabytes(result['bytes_up'])} up, {megabytes(result['bytes_down'])} down",
        "weights": result["weights_sha256"],
        "folder": result["out"],
    }
    if target is not None:
        shown[f"rounds to {100 * target:.1f} %"] = rounds_to(
            [result["rounds_to_target"]], result["rounds"]
        )
    if "personal" in result:
        shown["personal accuracy"] = f"{result['personal']['weighted']['mean']:.4f}"
    return facts(shown)
