"""Plots of runs: accuracy by round, change by class, a table's results; and a curve as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedloom.core.errors import UserError
from fedloom.metrics.curve import LAST
from fedloom.reports.comparison import ComparisonRow

if TYPE_CHECKING:
    from fedloom.reports.paper_table import CellResult

BARS = " ▁▂▃▄▅▆▇█"
PALETTE = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
    "#8C564B",
    "#7F7F7F",
)
MAX_NAME_BESIDE_AXES = 32  # characters; with longer names the legend goes below the axes
MAX_CLASS_NAMES = 20  # more names on the axis would overlap
MAX_LEVEL_ROW_NAMES = 6  # more row names on the axis are rotated


def sparkline(values: Sequence[float], low: float, high: float, width: int = 24) -> str:
    """Values as a row of bars between low and high, thinned to at most `width` characters.

    >>> sparkline([0.0, 0.5, 1.0], 0.0, 1.0)
    '▁▄█'
    """
    step = max(1, -(-len(values) // width))
    return "".join(_bar(value, low, high) for value in values[::step])


def _bar(value: float, low: float, high: float) -> str:
    span = (high - low) or 1.0
    share = min(1.0, max(0.0, (value - low) / span))
    # Slightly less than the exact height, so that halves round down.
    return BARS[1 + round((len(BARS) - 2) * share - 0.01)]


def curves(rows: Sequence[ComparisonRow], path: Path | None, title: str) -> Any:
    """Plot the mean accuracy by round, one line per row, and return the matplotlib figure.

    A moving average is drawn over a thin line of the accuracies that it averages. Without a path
    the figure is not saved.
    """
    figure, axes = _canvas()
    options = rows[0].options
    for number, row in enumerate(rows):
        dash, colour = _style(number)
        if row.smoothed != row.curve:
            axes.plot(*_in_percent(row.curve), "-", color=colour, lw=0.7, alpha=0.45)
        label = f"{row.name}  {100 * row.mean:.1f}"
        axes.plot(*_in_percent(row.smoothed), dash, color=colour, lw=1.8, label=label)
    for target in options.targets:
        axes.axhline(100 * target, color="#999999", lw=0.8, ls=":")
    axes.set(xlabel="round", ylabel="test accuracy, %", title=title)
    last = f"mean of the last {LAST}"
    averaging = last if options.ema is None else f"moving average {options.ema:g}"
    _save(figure, axes, path, averaging)
    return figure


def changes(
    recalls: Mapping[str, Sequence[float | None]], classes: Sequence[str], path: Path, title: str
) -> None:
    """Plot the change in recall by class from the first row to each other row, as bars.

    A class without a value in either row has no bar.
    """
    figure, axes = _canvas()
    (baseline_name, baseline), *others = recalls.items()
    width = 0.8 / len(others)
    for number, (name, recall) in enumerate(others):
        offset = (number - (len(others) - 1) / 2) * width
        positions = [c + offset for c in range(len(classes))]
        axes.bar(positions, _gains(recall, baseline), width, color=_style(number)[1], label=name)
    axes.axhline(0, color="#333333", lw=0.8)
    if len(classes) <= MAX_CLASS_NAMES:
        axes.set_xticks(range(len(classes)), classes)
    axes.set(xlabel="class", ylabel="change in recall, points", title=title)
    _save(figure, axes, path, f"against {baseline_name}")


def _gains(recall: Sequence[float | None], baseline: Sequence[float | None]) -> list[float]:
    """Differences in percentage points; NaN where a value is missing."""
    return [
        np.nan if ours is None or base is None else 100 * (ours - base)
        for ours, base in zip(recall, baseline, strict=True)
    ]


def effects(results: Sequence[CellResult], path: Path, title: str) -> None:
    """Plot the rows of a table from left to right, one colour per column.

    Error bars are the standard deviation over seeds; printed numbers are hollow circles. Rows that
    are values of a setting, with names like NAME=VALUE, are joined by a line.
    """
    figure, axes = _canvas()
    rows = list(dict.fromkeys(result.row for result in results))
    are_values = all("=" in row for row in rows)
    for number, column in enumerate(dict.fromkeys(result.column for result in results)):
        dash, colour = _style(number)
        of_column = [result for result in results if result.column == column]
        positions = [rows.index(result.row) for result in of_column]
        _draw_column(axes, positions, of_column, f"o{dash}" if are_values else "o", colour)
    _name_rows(axes, rows)
    axes.set(ylabel="%", title=title)
    has_printed = any(result.printed for result in results)
    _save(figure, axes, path, "hollow: printed" if has_printed else None)


def _draw_column(
    axes: Any, positions: Sequence[int], results: Sequence[CellResult], form: str, colour: str
) -> None:
    """The results of one column with error bars, and its printed numbers as hollow circles."""
    ours = [np.nan if result.mean is None else result.mean for result in results]
    spread = [result.std or 0.0 for result in results]
    label = results[0].column
    axes.errorbar(positions, ours, spread, fmt=form, color=colour, capsize=3, lw=1.6, label=label)
    printed = [np.nan if r.printed is None else r.printed.mean for r in results]
    axes.plot(positions, printed, "o", mfc="none", mec=colour)


def _name_rows(axes: Any, rows: Sequence[str]) -> None:
    if len(rows) > MAX_LEVEL_ROW_NAMES:
        axes.set_xticks(range(len(rows)), rows, rotation=30, ha="right")
    else:
        axes.set_xticks(range(len(rows)), rows, rotation=0, ha="center")


def _canvas() -> tuple[Any, Any]:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError(
            'plots need matplotlib; install it with: pip install "fedloom[plots]"'
        ) from None
    figure = Figure(figsize=(8, 4.8), dpi=150, layout="constrained")
    return figure, figure.add_subplot()


def _style(number: int) -> tuple[str, str]:
    """Dash pattern and colour of a line."""
    return "-" if number < len(PALETTE) else "--", PALETTE[number % len(PALETTE)]


def _save(figure: Any, axes: Any, path: Path | None, legend_title: str | None) -> None:
    axes.set_axisbelow(True)
    axes.grid(color="#e6e6e6", lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    _, labels = axes.get_legend_handles_labels()
    if any(len(label) > MAX_NAME_BESIDE_AXES for label in labels):
        loc, anchor = "upper left", (0.0, -0.12)
    else:
        loc, anchor = "center left", (1.0, 0.5)
    axes.legend(frameon=False, title=legend_title, loc=loc, bbox_to_anchor=anchor)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)


def _in_percent(curve: Sequence[tuple[int, float]]) -> tuple[list[int], list[float]]:
    """Rounds and accuracies in percent, as matplotlib takes them."""
    return [number for number, _ in curve], [100 * accuracy for _, accuracy in curve]
