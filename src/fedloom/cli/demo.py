"""`fedloom demo`: what the library is for, in three minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedloom.cli import options as o
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
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Runs at a time, one core each.")] = 2,
    json_: o.Json = False,
    debug: o.Debug = False,
) -> None:
    """FedAvg and stronger methods on clients that hardly agree on anything. Example: fedloom demo"""
    from fedloom.cli.compare import scheduler
    from fedloom.cli.comparison_view import weigh
    from fedloom.metrics.curve import CurveOptions

    methods = METHODS[:2] if quick else METHODS
    where = folder.with_name(folder.name + "-quick") if quick else folder
    say(
        "40 clients hold two classes of Fashion-MNIST each; 8 of them train a LeNet-5 in every round."
    )
    with scheduler(jobs) as work_off:
        raw = o.gather(None, "demo", {"rounds": 4 if quick else None}, None)
        weigh(raw, methods, 1, CurveOptions(), work_off, where, json_)
    if not json_:
        out.print(NEXT, highlight=False, markup=False)


NEXT = """
What to try next
  fedloom data show --preset demo                                       see how the classes are spread
  fedloom compare --preset demo --methods fedavg,scaffold --seeds 3     is the difference real?
  fedloom run --preset demo --method 'fedprox(mu=0.1)+fedavgm'          join a loss and a server optimiser
  fedloom methods scaffold                                              read a method beside its paper
  fedloom data add mine --from PATH                                     bring your own data"""
