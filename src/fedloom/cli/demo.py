"""`fedloom demo`: what the library is for, in four minutes: two comparisons and their pages."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedloom.cli import options as o
from fedloom.cli.compare import Jobs, scheduler
from fedloom.cli.comparison_view import Plots, compared, drawn, plot, print_comparison, to_json
from fedloom.cli.output import out, print_json, user_errors

if TYPE_CHECKING:
    from fedloom.experiment.schedule import PlannedRun
    from fedloom.reports.comparison import Comparison

SEEDS = 3
QUICK = {"rounds": 2, "epochs": 1}


@dataclass(frozen=True)
class Part:
    """One comparison of the demo: methods with the settings of a preset.

    Settings and arguments were chosen on other seeds than those shown; docs/results/demo.md says
    how.
    """

    preset: str
    methods: tuple[str, ...]
    about: str


FEW_SAMPLES = Part(
    "demo",
    ("fedavg", "fedalign", "fedmlb(ce=0.1,kl=0.1)", "fedmix(lam=0.05,size=5)"),
    "Few samples, uneven classes: 20 clients with 50 images each train one model, 20 epochs a "
    "round, and overfit.",
)
LONG_TAIL = Part(
    "longtail",
    ("fedavg", *(f"{name}(epochs=10,lr=0.02)" for name in ("finetune", "crt", "fedafa"))),
    "Long tail: some classes are rare. After the last round each client adapts the model to its "
    "own data.",
)


@user_errors
def demo(
    quick: Annotated[
        bool, typer.Option("--quick", help="One seed, two rounds of one epoch: it takes seconds.")
    ] = False,
    folder: Annotated[Path, typer.Option("--out", help="Folder of runs, plots and pages.")] = Path(
        "runs/demo"
    ),
    jobs: Jobs = 2,
    json_: o.Json = False,
    debug: o.Debug = False,
) -> None:
    """Compare methods on clients whose data differ, and write a report page of each comparison.

    Example: fedloom demo
    """
    target = folder.with_name(folder.name + "-quick") if quick else folder
    with scheduler(1 if quick else jobs) as run_all:  # starting a process takes longer than a run
        plans = {part: _planned(part, target, quick) for part in (FEW_SAMPLES, LONG_TAIL)}
        run_all([planned for of_part in plans.values() for planned in of_part])
        shown = {part: _show(part, of_part, target, json_) for part, of_part in plans.items()}
        picture = _picture(shown, target / "demo.png")
    if json_:
        facts = {part.preset: to_json(c, {}, target / part.preset) for part, c in shown.items()}
        pages = {part.preset: str(_page(part, target)) for part in shown}
        print_json({"comparisons": facts, "pages": pages, "picture": picture})
    else:
        _say_where(target, shown, picture)
        if quick:
            out.print(f"\n{QUICK_NOTE}", highlight=False)


def _planned(part: Part, target: Path, quick: bool) -> list[PlannedRun]:
    from fedloom.experiment.schedule import plan_methods

    settings = o.gather(None, part.preset, QUICK if quick else {}, None)
    methods = [method.partition("(")[0] for method in part.methods] if quick else part.methods
    return plan_methods(settings, methods, 1 if quick else SEEDS, target / part.preset)


def _show(part: Part, plans: list[PlannedRun], target: Path, quiet: bool) -> Comparison:
    """Compare the finished runs of a part: table, plots and page."""
    from fedloom.experiment.schedule import by_method
    from fedloom.metrics.curve import CurveOptions

    comparison = compared(by_method(plans), CurveOptions())
    plots = plot(comparison, target / part.preset, Plots())
    comparison.report(_page(part, target))
    if not quiet:
        out.print(f"\n{part.about}", highlight=False)
        print_comparison("method", comparison, plots)
    return comparison


def _page(part: Part, target: Path) -> Path:
    return target / f"{part.preset}.html"


def _picture(shown: dict[Part, Comparison], path: Path) -> str | None:
    """The path of the picture of both parts; None if it could not be drawn."""
    from fedloom.reports import overview_plot

    both = shown[FEW_SAMPLES], shown[LONG_TAIL]
    return str(path) if drawn(lambda path: overview_plot.plot(*both, path), path) else None


def _say_where(target: Path, shown: dict[Part, Comparison], picture: str | None) -> None:
    lines = ["", "Everything about these runs, on pages to open in a browser or to send:"]
    lines += [f"  {_page(part, target)}" for part in shown]
    if picture is not None:
        lines.append(f"Both comparisons in one picture: {picture}")
    for line in (*lines, NEXT):
        out.print(line, highlight=False, markup=False, soft_wrap=True)


QUICK_NOTE = (
    "Two rounds of one epoch with one seed only show that everything works here; the figures mean "
    "nothing. For those, run: fedloom demo"
)
NEXT = """
What to try next
  fedloom data show --preset demo                                     see how classes are split
  fedloom compare --preset demo --methods fedavg,scaffold --seeds 3   is the difference real?
  fedloom run --preset demo --method 'fedprox(mu=0.1)+fedavgm'        combine two methods
  fedloom methods fedafa                                              read how a method works
  fedloom data add mine --from PATH                                   bring your own data"""
