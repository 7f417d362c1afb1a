"""`fedloom tune`: the best settings of every method within the same budget, then a comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedloom.cli import curve_options as c
from fedloom.cli import options as o
from fedloom.cli.compare import Jobs, Seeds, scheduler
from fedloom.cli.output import say, user_errors
from fedloom.cli.sweep import (
    Memory,
    NamedSettings,
    Over,
    Yes,
    check_count,
    memory_limit,
    typed_axes,
)


@user_errors
def tune(
    config: NamedSettings = None,
    methods: Annotated[
        str | None,
        typer.Option("--methods", help="Methods, separated by commas.", show_default=False),
    ] = None,
    trials: Annotated[
        int, typer.Option("--trials", min=1, max=10_000, help="Trials of each method.")
    ] = 20,
    over: Over = None,
    seeds: Seeds = 3,
    tuning_seeds: Annotated[
        int,
        typer.Option("--tuning-seeds", min=1, max=1000, help="Seeds of a trial; not reported."),
    ] = 1,
    row: o.RowName = None,
    column: o.ColumnName = None,
    scale: o.ScaleName = None,
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
    target: c.Target = None,
    at: c.At = None,
    ema: c.Ema = None,
    ema_start: c.EmaStart = None,
    jobs: Jobs = 1,
    memory: Memory = None,
    yes: Yes = False,
    out_: Annotated[
        Path, typer.Option("--out", help="Folder of the trials; an earlier search is continued.")
    ] = Path("runs/tune"),
    trust: o.Trust = False,
    json_: o.Json = False,
    verbose: o.Verbose = False,
    debug: o.Debug = False,
) -> None:
    """Tune methods with the same budget, then compare them on the test data.

    Example: fedloom tune --methods fedavg,fedprox --trials 20 --over train.lr=0.001..0.3
    """
    flags, names = locals(), c.split(methods)
    from fedloom.cli.tune_view import show_space, show_tuned
    from fedloom.experiment.schedule import check_options
    from fedloom.experiment.stored_run import gave_up
    from fedloom.experiment.tune import Budget, Tuning

    with scheduler(jobs, engine, verbose, memory_limit(memory, jobs), gave_up) as run_all:
        options = c.options_from(flags)
        o.allow_typed(*names)
        settings = o.gather_named(config, flags, set_)
        each = trials * tuning_seeds + seeds
        check_count(each * len(names), f"{len(names)} methods with {each:,} runs each", yes)
        budget = Budget(trials, tuning_seeds)
        tuning = Tuning(settings, names, typed_axes(over), budget, out_)
        show_space(tuning, seeds)
        tuned = tuning.run(run_all, say)
        plans = tuning.plan_reported(tuned, seeds)
        check_options(plans, options)
        run_all(plans)
        show_tuned(tuned, plans, options, out_, json_)
