"""`fedloom sweep`: one experiment with several values of its settings, over several seeds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedloom.cli import curve_options as c
from fedloom.cli import options as o
from fedloom.cli.compare import Jobs, Seeds, scheduler
from fedloom.cli.output import user_errors

if TYPE_CHECKING:
    from fedloom.settings.search_space import Axis, Combination

NamedSettings = Annotated[
    str | None,
    typer.Argument(metavar="[CONFIG]", help="A TOML file or a preset.", show_default=False),
]
Over = Annotated[
    list[str] | None,
    typer.Option(
        "--over",
        help="A setting and its values, such as train.lr=0.01,0.1, or a range to draw from, such "
        "as train.lr=0.001..0.1 (repeatable).",
        show_default=False,
    ),
]
Memory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        help="Memory for all runs at a time, such as 8GB; needs --jobs.",
        show_default=False,
    ),
]
MAX_RUNS = 1000  # more are probably a mistake
Yes = Annotated[bool, typer.Option("--yes", help=f"Do it even if it takes over {MAX_RUNS:,} runs.")]


@user_errors
def sweep(
    config: NamedSettings = None,
    over: Over = None,
    random: Annotated[
        int | None,
        typer.Option(
            "--random",
            min=1,
            help="Draw this many combinations instead of all.",
            show_default=False,
        ),
    ] = None,
    seeds: Seeds = 1,
    row: o.RowName = None,
    column: o.ColumnName = None,
    scale: o.ScaleName = None,
    method: o.MethodName = None,
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
        Path, typer.Option("--out", help="Folder of the runs; existing runs are resumed.")
    ] = Path("runs/sweep"),
    trust: o.Trust = False,
    json_: o.Json = False,
    verbose: o.Verbose = False,
    debug: o.Debug = False,
) -> None:
    """Run an experiment with every combination of several values.

    Example: fedloom sweep --over train.lr=0.01,0.03,0.1 --over train.batch=16,32 --seeds 3
    """
    flags = locals()
    from fedloom.cli.sweep_view import show_sweep
    from fedloom.experiment.schedule import check_options, plan_sweep
    from fedloom.experiment.stored_run import gave_up
    from fedloom.settings.config import load

    with scheduler(jobs, engine, verbose, memory_limit(memory, jobs), gave_up) as run_all:
        options = c.options_from(flags)
        settings = o.gather_named(config, flags, set_)
        axes = typed_axes(over)
        combinations = _combinations(axes, random, seeds, load(settings).seed, yes)
        plans = plan_sweep(settings, combinations, seeds, out_)
        check_options(plans, options)
        run_all(plans)
        show_sweep(axes, combinations, plans, options, out_, json_)


def memory_limit(text: str | None, jobs: int) -> int | None:
    """The bytes of --memory."""
    from fedloom.core.errors import UserError
    from fedloom.experiment.job_memory import parse_memory

    if text is None:
        return None
    if jobs == 1:
        raise UserError(
            f"--memory {text} limits runs at the same time, and --jobs is 1; add --jobs N"
        )
    return parse_memory(text)


def typed_axes(over: Sequence[str] | None) -> list[Axis]:
    """The axes of --over. User code that they name was typed, so it may run."""
    from fedloom.settings.search_space import axis, check_axes

    axes = [axis(text) for text in over or ()]
    check_axes(axes)
    for one in axes:
        if one.setting in ("method", "model") and isinstance(one.values, tuple):
            o.allow_typed(*(value for value in one.values if isinstance(value, str)))
    return axes


def check_count(runs: int, what: str, yes: bool) -> None:
    """Raise for more runs than anybody is likely to want, unless they were confirmed."""
    from fedloom.core.errors import UserError

    if runs > MAX_RUNS and not yes:
        raise UserError(
            f"{what} are {runs:,} runs; ask for fewer (sweep can draw some: --random N), "
            "or add --yes"
        )


def _combinations(
    axes: Sequence[Axis], random: int | None, seeds: int, seed: int, yes: bool
) -> list[Combination]:
    """What to run: all combinations, or a given number of them at random."""
    from fedloom.core.errors import UserError
    from fedloom.settings.search_space import drawn, grid, grid_size

    if not axes:
        raise UserError(
            "nothing to vary; add at least one --over, for example --over train.lr=0.01,0.1"
        )
    count = min(filter(None, (grid_size(axes), random)), default=1)
    check_count(count * seeds, f"{count:,} combinations with {seeds:,} seeds", yes)
    return grid(axes) if random is None else drawn(axes, random, seed)
