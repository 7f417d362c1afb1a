"""A sweep on the terminal: one table, one picture, or JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedloom.cli.comparison_view import drawn, print_comparison
from fedloom.cli.output import out, print_json, say

if TYPE_CHECKING:
    from fedloom.experiment.schedule import PlannedRun
    from fedloom.metrics.curve import CurveOptions
    from fedloom.settings.search_space import Axis, Combination

CHOSEN_ON_TEST_DATA = (
    "note: these are scores on the test data. The best of many looks better than it is: to choose "
    "a setting, add --set data.validation=0.2, or use fedloom tune"
)


def show_sweep(
    axes: Sequence[Axis],
    combinations: Sequence[Combination],
    plans: Sequence[PlannedRun],
    options: CurveOptions,
    folder: Path,
    as_json: bool,
) -> None:
    """Compare the combinations, a row for each, and draw the effect of what was varied."""
    from fedloom.experiment.schedule import by_method
    from fedloom.experiment.stored_run import read_run
    from fedloom.reports.sweep import best_of, compare_sweep, sweep_points
    from fedloom.reports.sweep_plot import plot_sweep
    from fedloom.settings.search_space import label

    runs = {name: [read_run(path) for path in paths] for name, paths in by_method(plans).items()}
    comparison = compare_sweep(runs, [axis.setting for axis in axes], options)
    points, score = sweep_points(combinations, comparison)
    picture = folder / "sweep.png"
    shown = drawn(lambda path: plot_sweep(points, path, score, comparison.score.axis), picture)
    best = best_of(points)
    name = None if best is None else label(best.combination)
    if as_json:
        print_json(
            {
                **comparison.to_json(),
                "over": [str(axis) for axis in axes],
                "best": name,
                "picture": str(picture) if shown else None,
                "folder": str(folder),
            }
        )
        return
    print_comparison("settings", comparison, {"picture": str(picture)} if shown else {})
    out.print(f"best by {score}: {name}", highlight=False, markup=False)
    if not plans[0].config.data.validation:
        say(CHOSEN_ON_TEST_DATA)
