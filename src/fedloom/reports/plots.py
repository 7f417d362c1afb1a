"""Plots of runs: accuracy by round, change by class, a table's results; and a curve as text."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedloom.core.errors import UserError
from fedloom.metrics.curve import CurveOptions, averaged_evaluations
from fedloom.metrics.score import ACCURACY, Score
from fedloom.reports.colours import Style, drawing_order, styles
from fedloom.reports.comparison_row import ComparisonRow

if TYPE_CHECKING:
    from fedloom.reports.paper_table import CellResult

BARS = " ▁▂▃▄▅▆▇█"
MAX_NAME_NEXT_TO_AXES = 32  # characters; with longer names the legend goes below the axes
MAX_CLASS_NAMES = 20  # more names on the axis would overlap
MAX_TITLE = 72  # characters of a line
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


def curves(
    rows: Sequence[ComparisonRow],
    path: Path | None,
    title: str,
    axis_name: str = "test accuracy, %",
) -> Any:
    """Plot the mean accuracy by round, one line per row, and return the matplotlib figure.

    The band of a line spans its seeds. A moving average is drawn over a thin line of the accuracies
    that it averages. Without a path the figure is not saved.
    """
    figure, axes = canvas()
    draw_curves(axes, rows, title, axis_name)
    save(figure, path)
    return figure


def draw_curves(axes: Any, rows: Sequence[ComparisonRow], title: str, axis_name: str) -> None:
    """Draw the curves into existing axes, with their legend."""
    options, score = rows[0].options, rows[0].score
    row_styles = styles([row.method or row.name for row in rows])
    for number in drawing_order(row_styles):
        width = 1.8 + 2.4 * solid_twins_above(rows, number, row_styles)
        _draw_row(axes, rows, number, row_styles[number], width)
    for target in options.targets:
        label = target_label(options, target, score)
        axes.axhline(score.scale * target, color="#777777", lw=0.9, ls=":", label=label)
    axes.set(xlabel="round", ylabel=axis_name, title=wrapped(title))
    axes.locator_params(axis="x", integer=True)
    last = averaged_evaluations(len(row.curve) for row in rows).removesuffix(" evaluations")
    averaging = wrapped(last) if options.ema is None else f"moving average {options.ema:g}"
    band = "\nband: lowest to highest seed" if any(row.band for row in rows) else ""
    finish(axes, averaging + band, len(rows))


def _draw_row(
    axes: Any, rows: Sequence[ComparisonRow], number: int, style: Style, width: float
) -> None:
    row, colour = rows[number], style.light
    scale = row.score.scale
    if row.band and not same_curve_note(rows, number):  # a band is drawn once
        numbers, low, high = zip(*row.band, strict=True)
        bounds = [[scale * y for y in edge] for edge in (low, high)]
        axes.fill_between(numbers, *bounds, color=colour, alpha=0.13, lw=0)
    if row.smoothed != row.curve:
        axes.plot(*_as_drawn(row.curve, scale), "-", color=colour, lw=0.7, alpha=0.45)
    label = f"{row.name}  {row.score.text(row.mean, 1)}{same_curve_note(rows, number)}"
    line = _line_style(style)
    axes.plot(
        *_as_drawn(row.smoothed, scale),
        color=colour,
        lw=width,
        ls=line,
        marker="o" if len(row.smoothed) == 1 else None,
        label=label,
        gid=str(number),
    )


def same_curve_note(rows: Sequence[ComparisonRow], number: int) -> str:
    """Says which earlier row has exactly the same curve, where the two lie on each other."""
    twins = [row.name for row in rows[:number] if row.smoothed == rows[number].smoothed]
    return f" (same curve as {twins[0]})" if twins else ""


def solid_twins_above(
    rows: Sequence[ComparisonRow], number: int, row_styles: Sequence[Style]
) -> int:
    """How many solid lines lie exactly on that of a row; it is drawn wider, to be seen."""
    order = drawing_order(row_styles)
    above = order[order.index(number) + 1 :]
    twins = [other for other in above if rows[other].smoothed == rows[number].smoothed]
    return sum(not row_styles[other].dashes for other in twins)


def target_label(options: CurveOptions, target: float, score: Score = ACCURACY) -> str:
    """What the line of a target means."""
    of = f", the {score.name} of {options.target_of}" if options.target_of else ""
    return f"target {score.text(target, 1)}{score.unit}{of}"


def changes(
    recalls: Mapping[str, Sequence[float | None]],
    classes: Sequence[str],
    path: Path,
    title: str,
    methods: Sequence[str] = (),
) -> None:
    """Plot the change in recall by class from the first row to each other row, as bars.

    A class without a value in either row has no bar. methods: of the rows, which decide the
    colours; default: the names of the rows.
    """
    figure, axes = canvas()
    (baseline_name, baseline), *others = recalls.items()
    row_styles = styles(methods or list(recalls))[1:]
    width = 0.8 / len(others)
    for number, (name, recall) in enumerate(others):
        offset = (number - (len(others) - 1) / 2) * width
        positions = [c + offset for c in range(len(classes))]
        colour, hatch = row_styles[number].light, "//" if row_styles[number].dash else None
        bars = axes.bar(positions, _gains(recall, baseline), width, color=colour, label=name)
        for bar in bars:
            bar.set(hatch=hatch, edgecolor="white", lw=0)
    axes.axhline(0, color="#333333", lw=0.8)
    if len(classes) <= MAX_CLASS_NAMES:
        slanted = {"rotation": 30, "ha": "right"} if max(map(len, classes)) > 8 else {}
        axes.set_xticks(range(len(classes)), classes, **slanted)
    axes.set(xlabel="class", ylabel="change in recall, points", title=wrapped(title))
    finish(axes, f"against {baseline_name}")
    save(figure, path)


def _gains(recall: Sequence[float | None], baseline: Sequence[float | None]) -> list[float]:
    """Differences in percentage points; NaN where a value is missing."""
    return [
        np.nan if ours is None or base is None else 100 * (ours - base)
        for ours, base in zip(recall, baseline, strict=True)
    ]


def effects(results: Sequence[CellResult], path: Path | None, title: str, axis: str = "%") -> Any:
    """Plot the rows of a table from left to right, one colour per column; the figure.

    Error bars are the standard deviation over seeds; printed numbers are hollow circles. Rows that
    are values of a setting, with names like NAME=VALUE, are joined by a line.
    """
    figure, axes = canvas()
    rows = list(dict.fromkeys(result.row for result in results))
    are_values = all("=" in row for row in rows)
    columns = list(dict.fromkeys(result.column for result in results))
    for column, style in zip(columns, styles(columns), strict=True):
        of_column = [result for result in results if result.column == column]
        positions = [rows.index(result.row) for result in of_column]
        line = _line_style(style) if are_values else ""
        _draw_column(axes, positions, of_column, line, style.light)
    _name_rows(axes, rows)
    axes.set(ylabel=axis, title=wrapped(title))
    has_printed = any(result.printed for result in results)
    error_bars = "bars: std over seeds" if any(result.std for result in results) else ""
    hollow = "hollow: printed" if has_printed else ""
    finish(axes, "; ".join(filter(None, (error_bars, hollow))) or None)
    save(figure, path)
    return figure


def _draw_column(
    axes: Any, positions: Sequence[int], results: Sequence[CellResult], line: Any, colour: str
) -> None:
    """The results of one column with error bars, and its printed numbers as hollow circles."""
    ours = [np.nan if result.mean is None else result.mean for result in results]
    spread = [result.std or 0.0 for result in results]
    label = results[0].column
    form = {"fmt": "o", "ls": line, "capsize": 3, "lw": 1.6}
    axes.errorbar(positions, ours, spread, color=colour, label=label, **form)
    printed = [np.nan if r.printed is None else r.printed.mean for r in results]
    axes.plot(positions, printed, "o", mfc="none", mec=colour)


def _name_rows(axes: Any, rows: Sequence[str]) -> None:
    if len(rows) > MAX_LEVEL_ROW_NAMES:
        axes.set_xticks(range(len(rows)), rows, rotation=30, ha="right")
    else:
        axes.set_xticks(range(len(rows)), rows, rotation=0, ha="center")


def canvas(panels: int = 1) -> tuple[Any, Any]:
    """An empty figure and its axes; of several panels side by side, the list of them."""
    try:
        from fedloom.reports.figure import ShownFigure
    except ImportError:
        raise UserError(
            'plots need matplotlib; install it with: pip install "fedloom[plots]"'
        ) from None
    figure = ShownFigure(figsize=(8 * panels, 4.8), dpi=150, layout="constrained")
    return figure, figure.add_subplot() if panels == 1 else list(figure.subplots(1, panels))


def _line_style(style: Style) -> Any:
    """The dashes as matplotlib takes them."""
    return (0, style.dashes) if style.dashes else "-"


def wrapped(title: str) -> str:
    """A title whose lines are short enough for the width of a plot.

    >>> [wrapped(title).count("\\n") for title in ("Recall by class", "one after the other " * 5)]
    [0, 1]
    """
    return "\n".join(textwrap.fill(line, MAX_TITLE) for line in title.splitlines())


def finish(axes: Any, legend_title: str | None, rows: int = 0) -> None:
    """Grid and legend. rows: lines of the legend that come first, in their own order."""
    axes.set_axisbelow(True)
    axes.grid(color="#e6e6e6", lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    handles, labels = axes.get_legend_handles_labels()
    if rows:  # drawn in another order, with FedAvg last
        handles = sorted(handles, key=lambda handle: int(handle.get_gid() or rows))
        labels = [handle.get_label() for handle in handles]
    if any(len(label) > MAX_NAME_NEXT_TO_AXES for label in labels):
        loc, anchor = "upper left", (0.0, -0.12)
    else:
        loc, anchor = "center left", (1.0, 0.5)
    legend = {"frameon": False, "title": legend_title, "loc": loc, "bbox_to_anchor": anchor}
    axes.legend(handles, labels, alignment="left", **legend)


def save(figure: Any, path: Path | None) -> None:
    """Write the figure into a file, if there is one to write."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)


def _as_drawn(curve: Sequence[tuple[int, float]], scale: float) -> tuple[list[int], list[float]]:
    """Rounds and accuracies as matplotlib takes them, times the scale."""
    return [number for number, _ in curve], [scale * accuracy for _, accuracy in curve]
