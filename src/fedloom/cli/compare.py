"""`fedloom compare`: methods on the same clients, cohorts and batches, over several seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedloom.cli import curve_options as c
from fedloom.cli import options as o
from fedloom.cli.comparison_view import show
from fedloom.cli.output import say, user_errors
from fedloom.cli.prefork import prefork

if TYPE_CHECKING:
    from fedloom.experiment.schedule import PlannedRun

Jobs = Annotated[
    int, typer.Option("--jobs", min=1, max=1000, help="Runs at a time; if several, one core each.")
]
Seeds = Annotated[
    int, typer.Option("--seeds", min=1, max=1000, help="Number of seeds, counted from the run's.")
]
INTERRUPTED = 130  # exit code of a command that Ctrl-C ended
RunAll = Callable[["Sequence[PlannedRun]"], None]


@user_errors
def compare(
    methods: Annotated[
        str | None,
        typer.Option("--methods", help="Methods, separated by commas.", show_default=False),
    ] = None,
    seeds: Seeds = 1,
    config: o.ConfigFile = None,
    preset: o.PresetName = None,
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
    target: c.Target = None,
    at: c.At = None,
    ema: c.Ema = None,
    ema_start: c.EmaStart = None,
    jobs: Jobs = 1,
    out_: Annotated[
        Path, typer.Option("--out", help="Folder of the runs; existing runs are resumed.")
    ] = Path("runs/compare"),
    track: o.Track = None,
    track_clients: o.TrackClients = False,
    trust: o.Trust = False,
    json_: o.Json = False,
    verbose: o.Verbose = False,
    debug: o.Debug = False,
) -> None:
    """Compare methods with the same settings.

    Example: fedloom compare --methods fedavg,fedprox --seeds 3 --rounds 20
    """
    flags = locals()
    with scheduler(jobs, engine, verbose, track=track, track_clients=track_clients) as run_all:
        from fedloom.experiment.schedule import by_method, check_options, plan_methods

        options = c.options_from(flags)
        settings = o.gather(config, preset, flags, set_)
        o.allow_typed(*c.split(methods))
        plans = plan_methods(settings, c.split(methods), seeds, out_)
        check_options(plans, options)
        run_all(plans)
        show("method", by_method(plans), options, out_, json_)


@contextmanager
def scheduler(
    jobs: int,
    engine: str | None = None,
    verbose: bool = False,
    memory: int | None = None,
    forgive: Callable[[Path], bool] = lambda path: False,
    track: list[str] | None = None,
    track_clients: bool = False,
) -> Iterator[RunAll]:
    """Runs planned runs, `jobs` at a time; those in this process share one fork server.

    memory, forgive: see `run_all` in experiment/schedule.py.
    """
    with _way_on(), prefork(engine if jobs == 1 else None) as fork_server:
        from fedloom.cli.run import finish
        from fedloom.experiment import schedule

        trackers = o.trackers(track, track_clients)
        tracking = [word for text in track or () for word in ("--track", text)]
        tracking += ["--track-clients"] if track_clients else []

        def run_one(planned: PlannedRun) -> None:
            finish(
                planned.config,
                planned.path,
                title=planned.title,
                verbose=verbose,
                trackers=trackers,
                fork_server=fork_server,
                more_to_come=True,
            )

        yield lambda plans: schedule.run_all(plans, jobs, run_one, say, tracking, memory, forgive)


@contextmanager
def _way_on() -> Iterator[None]:
    """After Ctrl-C, say how to go on with all runs; the one that stopped says how to resume it."""
    try:
        yield
    except (KeyboardInterrupt, typer.Exit) as end:
        if isinstance(end, typer.Exit) and end.exit_code != INTERRUPTED:
            raise
        say("stopped; finished rounds are saved. Continue all runs with the same command.")
        raise typer.Exit(INTERRUPTED) from None
