"""Curves as a picture file and as a line of text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedloom.core.errors import UserError
from fedloom.study.compare import Row

_BARS = " ▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], low: float, high: float, width: int = 24) -> str:
    """Values as a row of bars between low and high, thinned to the width.

    >>> sparkline([0.0, 0.5, 1.0], 0.0, 1.0)
    '▁▄█'
    """
    step = max(1, -(-len(values) // width))
    span = (high - low) or 1.0
    return "".join(_BARS[1 + round((len(_BARS) - 2) * min(1.0, max(0.0, (v - low) / span)) - 0.01)] for v in values[::step])


def curves(rows: Sequence[Row], path: Path, title: str, target: float | None = None) -> None:
    """Mean accuracy by round, one line a method, named where it ends."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError('curves need matplotlib; install it with: pip install "fedloom[plots]"') from None
    figure = Figure(figsize=(8, 4.8), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    palette = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C564B", "#7F7F7F"]
    for number, row in enumerate(rows):
        xs, ys = zip(*row.curve, strict=True)
        dash = "-" if number < len(palette) else "--"
        axes.plot(
            xs,
            [100 * y for y in ys],
            dash,
            color=palette[number % len(palette)],
            lw=1.8,
            label=f"{row.method}  {100 * row.mean:.1f}",
        )
    if target is not None:
        axes.axhline(100 * target, color="#999999", lw=0.8, ls=":")
    axes.set(xlabel="round", ylabel="test accuracy, %", title=title)
    axes.grid(color="#e6e6e6", lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), title="method, last rounds")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
