"""Two comparisons in one picture: global models by round, and the models that clients end with."""

from __future__ import annotations

from pathlib import Path

from fedloom.reports import personal_plot
from fedloom.reports.comparison import Comparison, described
from fedloom.reports.plots import canvas, draw_curves, save


def plot(trained: Comparison, personalised: Comparison, path: Path) -> None:
    """Plot the curves of one comparison beside the clients' scores of the other."""
    figure, (left, right) = canvas(panels=2)
    title = f"{trained.accuracy_name.capitalize()} by round\n{described(trained.all_runs)}"
    draw_curves(left, trained.rows, title, trained.accuracy_name)
    personal_plot.draw(right, personalised)
    save(figure, path)
