"""Two comparisons in one picture: global models by round, and the models that clients end with."""

from __future__ import annotations

from pathlib import Path

from fedloom.reports import personal_plot
from fedloom.reports.comparison import Comparison, described
from fedloom.reports.plots import canvas, draw_curves, save

MARGIN = 2.0  # below the lowest curve, in percentage points


def plot(trained: Comparison, personalised: Comparison, path: Path) -> None:
    """Plot the curves of one comparison beside the clients' scores of the other."""
    figure, (left, right) = canvas(panels=2)
    title = f"{trained.accuracy_title} by round\n{described(trained.all_runs)}"
    draw_curves(left, trained.rows, title, trained.axis_name)
    left.set_ylim(bottom=_lowest_later(trained) - MARGIN)
    personal_plot.draw(right, personalised)
    save(figure, path)


def _lowest_later(comparison: Comparison) -> float:
    """The lowest mean accuracy in the last three quarters of the rounds, in percent.

    The steep first quarter would leave no room for the differences between the methods.
    """
    return min(
        100 * accuracy
        for row in comparison.rows
        for number, accuracy in row.smoothed
        if number > row.rounds // 4
    )
