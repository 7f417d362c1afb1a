"""Pictures of runs: curves by round, changes by class, effects of what varies along a table; and a curve as a line of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedloom.core.errors import UserError
from fedloom.reports.comparison import ComparisonRow

if TYPE_CHECKING:
    from fedloom.reports.paper_table import Figure

_BARS = " ▁▂▃▄▅▆▇█"
_PALETTE = (
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
_LONG = 32  # characters of a name that still leave room for the axes beside it


def sparkline(values: Sequence[float], low: float, high: float, width: int = 24) -> str:
    """Values as a row of bars between low and high, thinned to the width.

    >>> sparkline([0.0, 0.5, 1.0], 0.0, 1.0)
    '▁▄█'
    """
    step = max(1, -(-len(values) // width))
    span = (high - low) or 1.0
    return "".join(
        _BARS[1 + round((len(_BARS) - 2) * min(1.0, max(0.0, (v - low) / span)) - 0.01)]
        for v in values[::step]
    )


def curves(rows: Sequence[ComparisonRow], path: Path | None, title: str) -> Any:
    """Mean accuracy by round, one line a row; a moving average is drawn over the thin line of what it averages."""
    figure, axes = _canvas()
    reading = rows[0].options
    for number, row in enumerate(rows):
        dash, colour = _style(number)
        if row.smoothed != row.curve:
            axes.plot(*_percent(row.curve), "-", color=colour, lw=0.7, alpha=0.45)
        axes.plot(
            *_percent(row.smoothed),
            dash,
            color=colour,
            lw=1.8,
            label=f"{row.name}  {100 * row.mean:.1f}",
        )
    for target in reading.targets:
        axes.axhline(100 * target, color="#999999", lw=0.8, ls=":")
    axes.set(xlabel="round", ylabel="test accuracy, %", title=title)
    read = "mean of the last" if reading.ema is None else f"moving average {reading.ema:g}"
    _save(figure, axes, path, read)
    return figure


def changes(
    recalls: Mapping[str, Sequence[float | None]], classes: Sequence[str], path: Path, title: str
) -> None:
    """Recall by class against that of the first row, a bar for each other row; a class that has no figure has no bar."""
    figure, axes = _canvas()
    (first, base), *others = recalls.items()
    width = 0.8 / len(others)
    for number, (name, recall) in enumerate(others):
        places = [c + (number - (len(others) - 1) / 2) * width for c in range(len(classes))]
        gains = [
            np.nan if a is None or b is None else 100 * (a - b)
            for a, b in zip(recall, base, strict=True)
        ]
        axes.bar(places, gains, width, color=_style(number)[1], label=name)
    axes.axhline(0, color="#333333", lw=0.8)
    if len(classes) <= 20:  # more names would run into each other
        axes.set_xticks(range(len(classes)), classes)
    axes.set(xlabel="class", ylabel="change in recall, points", title=title)
    _save(figure, axes, path, f"against {first}")


def effects(figures: Sequence[Figure], path: Path, title: str) -> None:
    """The rows of a table from left to right, a colour a column, with the spread over seeds; what is printed, hollow beside it.

    Rows that are values, called NAME=VALUE, are joined by a line.
    """
    figure, axes = _canvas()
    rows = list(dict.fromkeys(f.row for f in figures))
    joined = all("=" in row for row in rows)
    for number, column in enumerate(dict.fromkeys(f.column for f in figures)):
        dash, colour = _style(number)
        memories = [f for f in figures if f.column == column]
        places = [rows.index(f.row) for f in memories]
        ours = [np.nan if f.mean is None else f.mean for f in memories]
        axes.errorbar(
            places,
            ours,
            [f.std or 0.0 for f in memories],
            fmt=f"o{dash if joined else ''}",
            color=colour,
            capsize=3,
            lw=1.6,
            label=column,
        )
        theirs = [np.nan if f.printed is None else f.printed.mean for f in memories]
        axes.plot(places, theirs, "o", mfc="none", mec=colour)
    axes.set_xticks(
        range(len(rows)),
        rows,
        rotation=30 if len(rows) > 6 else 0,
        ha="right" if len(rows) > 6 else "center",
    )
    axes.set(ylabel="%", title=title)
    _save(figure, axes, path, "hollow: printed" if any(f.printed for f in figures) else None)


def _canvas() -> tuple[Any, Any]:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError(
            'pictures need matplotlib; install it with: pip install "fedloom[plots]"'
        ) from None
    figure = Figure(figsize=(8, 4.8), dpi=150, layout="constrained")
    return figure, figure.add_subplot()


def _style(number: int) -> tuple[str, str]:
    """Dash and colour of a line."""
    return "-" if number < len(_PALETTE) else "--", _PALETTE[number % len(_PALETTE)]


def _save(figure: Any, axes: Any, path: Path | None, legend: str | None) -> None:
    axes.set_axisbelow(True)
    axes.grid(color="#e6e6e6", lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    long = any(len(name) > _LONG for name in axes.get_legend_handles_labels()[1])
    place = (
        {"loc": "upper left", "bbox_to_anchor": (0, -0.12)}
        if long
        else {"loc": "center left", "bbox_to_anchor": (1, 0.5)}
    )
    axes.legend(frameon=False, title=legend, **place)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)


def _percent(curve: Sequence[tuple[int, float]]) -> tuple[list[int], list[float]]:
    return [r for r, _ in curve], [100 * y for _, y in curve]
