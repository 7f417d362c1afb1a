"""Tuned methods on the terminal: the search space, what was chosen, how it does on test data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedloom.cli.comparison_view import drawn, print_comparison
from fedloom.cli.output import print_json, print_table, say, table

if TYPE_CHECKING:
    from fedloom.experiment.schedule import PlannedRun
    from fedloom.experiment.tune import Tuned, Tuning
    from fedloom.metrics.curve import CurveOptions


def show_space(tuning: Tuning, seeds: int) -> None:
    """Say what every method gets, and what is varied for it."""
    budget = tuning.budget
    say(
        f"every method: {budget.trials} trials, each the mean of {budget.seeds} tuning "
        f"seed{'s' if budget.seeds > 1 else ''} on held-out training samples; "
        f"the best one is reported on the test data, with {seeds} other seeds"
    )
    for method, axes in tuning.axes.items():
        say(f"  {method}: {'; '.join(map(str, axes))}")


def show_tuned(
    tuned: Sequence[Tuned],
    plans: Sequence[PlannedRun],
    options: CurveOptions,
    folder: Path,
    as_json: bool,
) -> None:
    """Print what was chosen for each method, and compare the methods with it."""
    from fedloom.experiment.schedule import by_method
    from fedloom.experiment.stored_run import read_run
    from fedloom.reports.sweep import compare_sweep
    from fedloom.reports.sweep_plot import plot_progress

    runs = {name: [read_run(path) for path in paths] for name, paths in by_method(plans).items()}
    varied = {axis.setting for one in tuned for axis in one.axes}
    comparison = compare_sweep(runs, varied, options)
    picture = folder / "tune.png"
    shown = drawn(lambda path: plot_progress(tuned, path), picture)
    if as_json:
        paths = {"picture": str(picture) if shown else None, "folder": str(folder)}
        print_json({**comparison.to_json(), "tuned": [_facts(one) for one in tuned], **paths})
        return
    columns = ["method", f"held-out {comparison.score.axis}", "trials", "gave up", "chosen"]
    print_table(table(columns, [_cells(one) for one in tuned], right=(1, 2, 3)))
    print_comparison("on test data", comparison, {"picture": str(picture)} if shown else {})


def _cells(one: Tuned) -> list[str]:
    from rich.markup import escape

    from fedloom.metrics.score import SCORES
    from fedloom.settings.search_space import label

    digits = SCORES[one.config.task].digits(2)
    counts = [str(len(one.trials)), str(one.gave_up)]
    return [escape(one.method), f"{one.score:.{digits}f}", *counts, escape(label(one.chosen))]


def _facts(one: Tuned) -> dict[str, Any]:
    """As JSON."""
    return {
        "method": one.method,
        "space": [str(axis) for axis in one.axes],
        "chosen": dict(one.chosen),
        "held_out": one.score,
        "gave_up": one.gave_up,
        "trials": [{"settings": dict(t.combination), "score": t.score} for t in one.trials],
    }
