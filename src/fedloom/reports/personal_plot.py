"""Plot of the models that clients end with: recall over all classes, frequent and rare ones."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedloom.metrics.score import ACCURACY
from fedloom.reports.colours import Style, styles
from fedloom.reports.comparison import Comparison, described
from fedloom.reports.comparison_row import ComparisonRow
from fedloom.reports.plots import canvas, finish, save, wrapped

ALL = "all classes\nof a client"
GROUPS = {"head": "frequent\nclasses", "middle": "middle\nclasses", "tail": "rare\nclasses"}
WIDTH = 0.7  # of the points of one group, in distances between groups


def plot(comparison: Comparison, path: Path) -> None:
    """Plot the scores of the clients' models, a group of points per kind of class."""
    figure, axes = canvas()
    draw(axes, comparison)
    save(figure, path)


def draw(axes: Any, comparison: Comparison) -> None:
    """Draw the scores into existing axes: the mean over seeds, with a line from lowest to highest.

    All rows need the scores of their clients.
    """
    rows = comparison.rows
    title = f"Models that the clients end with\n{described(comparison.all_runs)}"
    score = comparison.score
    scored = [_scores(row) for row in rows]
    groups = [group for group in (ALL, *GROUPS.values()) if all(group in s[0] for s in scored)]
    row_styles = styles([row.method or row.name for row in rows])
    for number, (row, seeds) in enumerate(zip(rows, scored, strict=True)):
        offset = WIDTH * ((number + 0.5) / len(rows) - 0.5)
        places = [place + offset for place in range(len(groups))]
        values = [[score.scale * seed[group] for seed in seeds] for group in groups]
        label = f"{row.name}  {score.text(statistics.fmean(s[ALL] for s in seeds), 1)}"
        _draw_row(axes, places, values, label, row_styles[number])
    of_classes = score is ACCURACY
    axes.set_xticks(range(len(groups)), groups if of_classes else ["test samples\nof a client"])
    for place in range(1, len(groups)):
        axes.axvline(place - 0.5, color="#e6e6e6", lw=0.8)
    what = "recall on test data, %" if of_classes else comparison.axis_name
    axes.set(ylabel=what, title=wrapped(title), xlim=(-0.5, len(groups) - 0.5))
    several = any(len(row.client_scores) > 1 for row in rows)
    finish(axes, "mean over clients" + ("\nline: lowest to highest seed" if several else ""))
    axes.grid(visible=False, axis="x")


def _scores(row: ComparisonRow) -> list[dict[str, float]]:
    """The recall of each seed by the name of its group on the axis; of other tasks the score."""
    found = []
    pairs = zip(row.client_scores, row.client_values(row.score.clients), strict=True)
    for scores, mean in pairs:
        by_group = {GROUPS[name]: recall for name, recall in scores.group_recall.items()}
        found.append({ALL: math.nan if mean is None else mean, **by_group})
    return found


def _draw_row(
    axes: Any, places: Sequence[float], values: Sequence[Sequence[float]], label: str, style: Style
) -> None:
    means = [statistics.fmean(seeds) for seeds in values]
    below = [mean - min(seeds) for mean, seeds in zip(means, values, strict=True)]
    above = [max(seeds) - mean for mean, seeds in zip(means, values, strict=True)]
    axes.errorbar(
        places,
        means,
        (below, above),
        fmt="o",
        ms=7,
        lw=2,
        color=style.light,
        mfc="white" if style.dash else style.light,
        mew=2,
        label=label,
    )
