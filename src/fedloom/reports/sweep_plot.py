"""Pictures of a sweep, scores against the settings that were varied, and of tuning, by trial."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedloom.core.errors import UserError
from fedloom.experiment.tune import Tuned
from fedloom.metrics.score import SCORES
from fedloom.reports.paper_table import CellResult
from fedloom.reports.plots import effects
from fedloom.reports.sweep import SweepPoint, best_of, rank

MAX_LINES = 9  # one colour each
MAX_TRIALS = 20  # more names on the axis would overlap
DOTS, BEST = "#0072B2", "#D55E00"
DECADE = 10  # from this ratio of values on, their axis is logarithmic


def plot_sweep(points: Sequence[SweepPoint], path: Path, score: str, axis: str = "%") -> None:
    """Draw one or two settings as lines, with a line for each value of the second.

    With more settings, too many lines or combinations at random there is a panel for each setting,
    with a dot for each combination. score: what is drawn, in words. axis: what it is counted in.
    """
    settings = [name for name, _ in points[0].combination]
    counts = [len({repr(value) for value in _values(points, n)}) for n in range(len(settings))]
    is_grid = np.prod(counts) == len(points)
    if len(settings) <= 2 and is_grid and counts[-1] <= MAX_LINES:
        effects(_as_table(points), path, f"{score.capitalize()} by {' and '.join(settings)}", axis)
    elif len(settings) == 1:
        effects(_as_table(points), path, f"{score.capitalize()} by {settings[0]}", axis)
    else:
        _panels(points, settings, path, score, axis)


def _values(points: Sequence[SweepPoint], number: int) -> list[Any]:
    """What the setting of this number is in each point."""
    return [point.combination[number][1] for point in points]


def _as_table(points: Sequence[SweepPoint]) -> list[CellResult]:
    """Values of the first setting as rows, those of the second as columns."""
    ordered = sorted(points, key=lambda p: [rank(value) for _, value in p.combination])
    return [
        CellResult(
            _short(*point.combination[0]),
            " ".join(_short(*pair) for pair in point.combination[1:]) or "mean over seeds",
            point.scores,
            None,
            0.0,
        )
        for point in ordered
    ]


def _short(setting: str, value: Any) -> str:
    return f"{setting.rpartition('.')[2]}={value}"


def _panels(
    points: Sequence[SweepPoint], settings: Sequence[str], path: Path, score: str, axis: str
) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError(
            'plots need matplotlib; install it with: pip install "fedloom[plots]"'
        ) from None
    columns = 2 if len(settings) in (2, 4) else 3
    lines = -(-len(settings) // columns)
    figure = Figure(figsize=(3.6 * columns + 0.6, 3.4 * lines), dpi=150, layout="constrained")
    panels = list(figure.subplots(lines, columns, sharey=True, squeeze=False).flat)
    best = best_of(points)
    for number, (setting, axes) in enumerate(zip(settings, panels, strict=False)):
        _panel(axes, _values(points, number), points, best)
        axes.set_xlabel(setting)
        if number % columns == 0:
            axes.set_ylabel(f"{score}, {axis}" if axis == "%" else score)
    for axes in panels[len(settings) :]:
        axes.set_visible(False)
    figure.suptitle(
        f"{score.capitalize()}, {len(points)} combinations; orange: the best", fontsize=11
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _panel(
    axes: Any, values: Sequence[Any], points: Sequence[SweepPoint], best: SweepPoint | None
) -> None:
    """A dot per combination; error bars are the standard deviation over seeds."""
    numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    names = sorted({str(v) for v in values})
    at = list(values) if numeric else [names.index(str(v)) for v in values]
    means, spread = [p.mean for p in points], [p.std or np.nan for p in points]
    form = {"ms": 4.5, "lw": 0.8, "capsize": 2}
    axes.errorbar(at, means, spread, fmt="o", color=DOTS, alpha=0.75, **form)
    if best is not None:
        x = at[points.index(best)]
        axes.errorbar(x, best.mean, best.std or np.nan, fmt="o", color=BEST, zorder=3, **form)
    if not numeric:
        axes.set_xticks(range(len(names)), names, rotation=20, ha="right")
        axes.set_xlim(-0.5, len(names) - 0.5)
    elif min(at) > 0 and max(at) / min(at) >= DECADE:
        axes.set_xscale("log")
    axes.set_axisbelow(True)
    axes.grid(color="#e6e6e6", lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def plot_progress(tuned: Sequence[Tuned], path: Path) -> None:
    """Draw the best score so far by trial, a line for each method."""
    count = len(tuned[0].trials)
    step = -(-count // MAX_TRIALS)
    shown = [number for number in range(count) if (count - 1 - number) % step == 0]
    results = [
        CellResult(f"trial={number + 1}", one.method, (one.best_so_far()[number],), None, 0.0)
        for number in shown
        for one in tuned
    ]
    score = SCORES[tuned[0].config.task]
    title = f"Best {score.name} so far on held-out samples, by trial"
    effects(results, path, title, score.axis)
