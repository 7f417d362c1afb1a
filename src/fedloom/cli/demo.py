"""`fedloom demo`: what the library is for, in four minutes: two comparisons, with report pages."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedloom.cli import options as o
from fedloom.cli.compare import Jobs, scheduler
from fedloom.cli.comparison_view import Plots, compared, drawn, plot, print_comparison, to_json
from fedloom.cli.output import out, print_json, say, user_errors

if TYPE_CHECKING:
    from fedloom.experiment.schedule import PlannedRun
    from fedloom.reports.comparison import Comparison

SEEDS, QUICK_ROUNDS = 3, 3


@dataclass(frozen=True)
class Part:
    """One comparison of the demo: methods with the settings of a preset.

    The arguments of the methods were chosen on other seeds than those shown: docs/results/demo.md.
    """

    preset: str
    methods: tuple[str, ...]
    about: str


PARTS = (
    Part(
        "demo",
        ("fedavg", "fedalign", "fedmlb", "fedmix"),
        "Label skew: one model for all clients, each of which has samples of a few classes.",
    ),
    Part(
        "longtail",
        (
            "fedavg",
            "finetune(epochs=10,lr=0.02)",
            "crt(epochs=10,lr=0.02)",
            "fedafa(epochs=10,lr=0.02)",
        ),
        "Long tail: some classes are rare, and every client gets a model of its own at the end.",
    ),
)


@user_errors
def demo(
    quick: Annotated[
        bool, typer.Option("--quick", help="One seed and three rounds, in seconds.")
    ] = False,
    folder: Annotated[
        Path, typer.Option("--out", help="Folder of runs, plots and pages.")
    ] = Path("runs/demo"),
    jobs: Jobs = 2,
    json_: o.Json = False,
    debug: o.Debug = False,
) -> None:
    """Compare FedAvg with other methods on clients whose data differ, and write report pages.

    Example: fedloom demo
    """
    target = folder.with_name(folder.name + "-quick") if quick else folder
    with scheduler(jobs) as run_all:
        plans = {part: _planned(part, target, quick) for part in PARTS}
        run_all([planned for of_part in plans.values() for planned in of_part])
        comparisons = {part: _comparison(of_part) for part, of_part in plans.items()}
        plots = {part: plot(c, target / part.preset, Plots()) for part, c in comparisons.items()}
        pages = {part: _write_page(c, target / f"{part.preset}.html") for part, c in comparisons.items()}
        picture = _draw_both(comparisons, target / "demo.png")
    ...
