"""`fedloom run` and `fedloom resume`: one run from its first round to its last."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedloom.cli import options as o
from fedloom.cli.output import (
    err,
    facts,
    megabytes,
    out,
    print_json,
    say,
    say_if,
    user_errors,
)
from fedloom.cli.prefork import prefork
from fedloom.core.errors import UserError
from fedloom.metrics.curve import rounds_to
from fedloom.metrics.score import ACCURACY, SCORES

if TYPE_CHECKING:
    from fedloom.metrics.records import RunResult
    from fedloom.settings.config import Config
    from fedloom.trackers.tracker import Tracker

Out = Annotated[
    Path | None,
    typer.Option("--out", help="Run folder; default: runs/METHOD-sSEED.", show_default=False),
]
RunDir = Annotated[Path, typer.Argument(help="A run folder.")]


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
    optimiser: o.Optimiser = None,
    lr: o.LearningRate = None,
    batch: o.BatchSize = None,
    epochs: o.Epochs = None,
    seed: o.Seed = None,
    engine: o.Engine = None,
    workers: o.Workers = None,
    device: o.Device = None,
    set_: o.Set = None,
    strict: o.Strict = False,
    rounds_of: Annotated[
        Path | None,
        typer.Option(
            "--rounds-of",
            help="A finished run with the same rounds: copy them, and do only what follows.",
            show_default=False,
        ),
    ] = None,
    out_: Out = None,
    track: o.Track = None,
    track_clients: o.TrackClients = False,
    trust: o.Trust = False,
    json_: o.Json = False,
    verbose: o.Verbose = False,
    debug: o.Debug = False,
) -> None:
    """Train one method with one seed.

    Example: fedloom run --method fedprox --rounds 3 --clients 20 --per-round 5 --seed 1
    """
    with prefork(engine) as fork_server:
        from fedloom.runs.folder_layout import check_vacant
        from fedloom.settings.config import load

        settings = load(o.gather(config, preset, locals(), set_))
        o.trust_runs(trust, rounds_of)
        path = out_ or free_folder(settings)
        check_vacant(path)
        result = finish(
            settings,
            path,
            verbose=verbose,
            trackers=o.trackers(track, track_clients),
            rounds_of=rounds_of,
            fork_server=fork_server,
        )
        print_result(result, path, settings, json_)


@user_errors
def resume(
    folder: RunDir,
    json_: o.Json = False,
    client: Annotated[
        int | None,
        typer.Option(
            "--client", help="Only replay this client of the next round.", show_default=False
        ),
    ] = None,
    engine: o.Engine = None,
    workers: o.Workers = None,
    strict: o.Strict = False,
    track: o.Track = None,
    track_clients: o.TrackClients = False,
    trust: o.Trust = False,
    verbose: o.Verbose = False,
    debug: o.Debug = False,
) -> None:
    """Continue a run from its last checkpoint.

    Example: fedloom resume runs/fedprox-s1
    """
    with prefork(engine) as fork_server:
        from fedloom.experiment.stored_run import run_config

        settings = run_config(folder)
        o.judge(settings.references, folder, trust)
        given = {"engine": engine, "workers": workers}
        elsewhere: dict[str, Any] = {n: value for n, value in given.items() if value is not None}
        if strict:
            elsewhere["guard"] = {**settings.guard.model_dump(), "strict": True}
        trackers = o.trackers(track, track_clients)
        if client is None:
            result = finish(
                settings,
                folder,
                verbose=verbose,
                trackers=trackers,
                elsewhere=elsewhere,
                fork_server=fork_server,
            )
            print_result(result, folder, settings, json_)
        elif trackers:
            raise UserError(
                "--client only replays a client, which is not tracked; leave out --track"
            )
        else:
            _replay(settings, folder, client, json_)


def free_folder(settings: Config) -> Path:
    """runs/METHOD-sSEED, or the next free name after it."""
    name = "".join(c if c.isalnum() or c in "-+" else "_" for c in settings.title)
    base = Path("runs") / f"{name}-s{settings.seed}"
    number, path = 1, base
    while path.exists():
        number += 1
        path = base.with_name(f"{base.name}-{number}")
    return path


def finish(
    settings: Config,
    path: Path,
    *,
    title: str | None = None,
    verbose: bool = False,
    trackers: Sequence[Tracker] = (),
    more_to_come: bool = False,
    **how: Any,
) -> RunResult:
    """Train to the last round with a progress display; Ctrl-C finishes the round and stops.

    more_to_come: other runs follow, so that Ctrl-C in the last round of this one stops, too.
    """
    from fedloom.core.client_error import ClientError
    from fedloom.core.round_report import TooManySkipped
    from fedloom.experiment.execute import execute
    from fedloom.experiment.interrupt import graceful_interrupt
    from fedloom.experiment.progress import Progress
    from fedloom.experiment.train import Interrupted
    from fedloom.runs.checkpoint_files import saved_rounds
    from fedloom.runs.folder_layout import CHECKPOINT, CONFIG

    trust = " --trust" if settings.references else ""  # the folder names code; here it was typed
    try:
        with graceful_interrupt(say) as stop, Progress(title, err) as progress:
            trained = execute(
                settings,
                path,
                callbacks=[progress, *trackers],
                stop=stop,
                warn=say,
                inform=say_if(verbose),
                **how,
            )
    except Interrupted as interrupted:
        say(f"{interrupted}; continue with: fedloom resume {path}{trust}")
        raise typer.Exit(130) from None
    except KeyboardInterrupt:
        if not (path / CONFIG).exists():
            say("stopped before the run began; start again with the same command")
        else:
            rounds = saved_rounds(path / CHECKPOINT)
            saved = f"saved up to round {max(rounds)}" if rounds else "no round is saved yet"
            say(f"stopped; {saved}; continue with: fedloom resume {path}{trust}")
        raise typer.Exit(130) from None
    except (ClientError, TooManySkipped) as error:
        if error.client is not None:
            again = f"fedloom resume {path} --client {error.client}{trust} --debug"
            say(f"replay only this client: {again}")
        raise
    for tracker in trackers:
        if tracker.look is not None:
            say(f"{tracker.name}: {tracker.look}")
    if more_to_come and stop():
        raise typer.Exit(130)
    return trained.result


def _replay(settings: Config, path: Path, client: int, as_json: bool) -> None:
    """Run one client of the next round and show its reply; the run is left as it is."""
    from fedloom.experiment.build import server_device
    from fedloom.experiment.identity import check_same_data
    from fedloom.experiment.prepare import prepare
    from fedloom.experiment.train import replay_client
    from fedloom.runs.folder import RunFolder

    with (
        RunFolder.open(path, server_device(settings)) as folder,
        prepare(settings) as prepared,
    ):
        check_same_data(str(path), folder.identity(), prepared.identity.data)
        reply = replay_client(prepared, folder, client)
    if as_json:
        print_json(reply)
    else:
        out.print(facts(reply))


def print_result(result: RunResult, path: Path, settings: Config, as_json: bool) -> None:
    """Print the result of a finished run."""
    if as_json:
        print_json({**result.to_json(), "folder": str(path)})
        return
    accuracy = f"validation {result.score_name}" if settings.data.validation else result.score_name
    score = SCORES[settings.task]
    others = {n: v for n, v in result.metrics.items() if n != score.metric}
    shown = {
        "method": result.method,
        accuracy: f"{result.accuracy:.4f}",
        **{name: "-" if value is None else f"{value:.4g}" for name, value in others.items()},
        "rounds": result.rounds,
        "seconds": result.seconds,
        "sent": f"{megabytes(result.bytes_up)} up, {megabytes(result.bytes_down)} down",
        "weights": result.weights_sha256,
        "folder": path,
    }
    if (target := settings.evaluate.target) is not None:
        shown[f"rounds to {score.text(target, 1)}{score.unit}"] = rounds_to(
            [result.rounds_to_target], result.rounds
        )
    if result.personal_models is not None:
        of = "label_weighted_accuracy" if score is ACCURACY else score.clients
        spread = result.personal_models.spread_of(of)
        shown[f"personal {score.name}"] = "-" if spread is None else f"{spread.mean:.4f}"
    out.print(facts(shown))
