"""`fedloom demo`: what the library is for, in three minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedloom.cli import options as o
from fedloom.cli.compare import Jobs, scheduler
from fedloom.cli.comparison_view import show
from fedloom.cli.output import out, say, user_errors

METHODS = (
    "fedavg",
    "fedprox(mu=0.1)",
    "feddyn(alpha=0.03)",
    "fedavgm(beta=0.8)",
    "fedadam",
    "scaffold",
)


@user_errors
def demo(
    quick: Annotated[
        bool, typer.Option("--quick", help="Two methods and few rounds, in seconds.")
    ] = False,
    folder: Annotated[Path, typer.Option("--out", help="Folder of the runs.")] = Path("runs/demo"),
    jobs: Jobs = 2,
    json_: o.Json = False,
    debug: o.Debug = False,
) -> None:
    """Compare FedAvg with other methods on highly non-IID clients.

    Example: fedloom demo
    """
    from fedloom.experiment.schedule import by_method, plan_methods
    from fedloom.metrics.curve import CurveOptions

    methods = METHODS[:2] if quick else METHODS
    target = folder.with_name(folder.name + "-quick") if quick else folder
    say("40 clients hold two classes of Fashion-MNIST each; 8 of them train a LeNet-5 per round.")
    with scheduler(jobs) as run_all:
        settings = o.gather(None, "demo", {"rounds": 4 if quick else None}, None)
        plans = plan_methods(settings, methods, 1, target)
        run_all(plans)
        show("method", by_method(plans), CurveOptions(), target, json_)
    if not json_:
        out.print(NEXT, highlight=False, markup=False)


NEXT = """
What to try next
  fedloom data show --preset demo                                     see how classes are split
  fedloom compare --preset demo --methods fedavg,scaffold --seeds 3   is the difference real?
  fedloom run --preset demo --method 'fedprox(mu=0.1)+fedavgm'        combine two methods
  fedloom methods scaffold                                            read how a method works
  fedloom data add mine --from PATH                                   bring your own data"""
