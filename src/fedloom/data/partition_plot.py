"""Plots of a partition, clients by classes: blocks in a terminal, bubbles or a heat map as PNG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from fedloom.core.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

# Light to dark blue that differ in lightness alone: readable with any colour vision, and in grey.
RAMP = ("#f3f6fa", "#d3e2f1", "#9fc3e2", "#629bcb", "#2f6fac", "#134782", "#08264d")
GLYPHS = " ░▒▓█"  # visible only in terminals without colour
INK, QUIET, BAR = "#1c2733", "#6b7885", "#a9b7c6"
MAX_CLASS_NAMES, MAX_NAME = 30, 20  # names next to the plot, and characters of each
MAX_BUBBLES = 600  # with more cells circles overlap or vanish, so a heat map is drawn instead


def terminal(counts: np.ndarray, rows: int = 24, columns: int = 50) -> RenderableType:
    """One line per client, one block per class, darker for more samples.

    If there are more clients than rows, every k-th is shown, and the caption says so: averaging
    neighbours would hide the differences.
    """
    step = -(-len(counts) // rows)
    per_block = -(-counts.shape[1] // columns)
    grid = np.add.reduceat(counts[::step], np.arange(0, counts.shape[1], per_block), axis=1)
    sizes, width = grid.sum(axis=1), len(str(len(counts) - 1))
    lines = []
    for i, (shades, size) in enumerate(zip(_shade(grid), sizes, strict=True)):
        lines.append(_line(f"{i * step:>{width}}", shades, size, sizes.max()))
    return Group(_caption(counts, step, per_block), *lines)


def _shade(counts: np.ndarray) -> np.ndarray:
    """From 0 to 1, by the square root, so that a client's rare classes remain visible."""
    shade: np.ndarray = np.sqrt(counts / max(counts.max(), 1))
    return shade


def _caption(counts: np.ndarray, step: int, per_block: int) -> Text:
    classes = f" by {counts.shape[1]} classes" if counts.shape[1] > 1 else ""
    caption = (
        f"{len(counts):,} clients{classes}, {int(counts.sum()):,} samples; "
        "darker is more (square root)"
    )
    if step > 1:
        caption += f"\nshown: one client in {step}"
    if per_block > 1:
        caption += f"\na block is the sum of {per_block} classes"
    return Text(caption)


def _line(name: str, shades: np.ndarray, size: float, largest: float) -> Text:
    line = Text(f"{name} ", no_wrap=True)
    block_width = 2 if len(shades) <= 20 else 1
    for shade in shades:
        colour = RAMP[_level(shade, len(RAMP))]
        glyph = GLYPHS[_level(shade, len(GLYPHS))]
        line.append(glyph * block_width, style=f"{colour} on {colour}")
    bar_length = max(round(12 * size / max(largest, 1)), int(size > 0))
    line.append(f" {'▇' * bar_length}", style=BAR)
    return line.append(f" {size:,.0f}")


def _level(value: float, levels: int) -> int:
    """0 for the value 0, else 1 to levels - 1."""
    if value == 0:
        return 0
    return 1 + min(int(value * (levels - 1)), levels - 2)


def save_png(counts: np.ndarray, path: Path, title: str = "", classes: Sequence[str] = ()) -> None:
    """Write a PNG with clients from left to right and classes from top to bottom.

    Bars show the size of each client (above) and the total of each class (right). classes: their
    names, which are shown instead of numbers unless there are many.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError(
            'a plot of a partition needs matplotlib; install it with: pip install "fedloom[plots]"'
        ) from error
    use_bubbles = counts.size <= MAX_BUBBLES
    height = float(np.clip(2.6 + 0.3 * counts.shape[1], 4.5, 8.5))
    figure = Figure(figsize=(10, height), dpi=150, layout="constrained")
    grid = figure.add_gridspec(2, 2, width_ratios=(12, 1), height_ratios=(1, 1.4 * height - 2.4))
    main = figure.add_subplot(grid[1, 0])
    if use_bubbles:
        shown, label = counts, "client"
        legend = _bubbles(main, shown)
    else:
        shown, label = _by_main_class(counts), "clients, ordered by their most frequent class"
        legend = _heat_map(main, shown)
    _frame(main, shown, label)
    if 0 < len(classes) <= MAX_CLASS_NAMES:
        main.set_yticks(range(len(classes)), [name[:MAX_NAME] for name in classes])
    above = figure.add_subplot(grid[0, 0], sharex=main)
    right = figure.add_subplot(grid[1, 1], sharey=main)
    _bars(above, shown.sum(axis=1), "vertical")
    _bars(right, shown.sum(axis=0), "horizontal")
    heading = title or f"{len(counts):,} clients by {counts.shape[1]} classes"
    above.set_title(heading, loc="left", fontsize=13, weight="bold", color=INK, pad=22)
    above.annotate(
        legend,
        (0, 1),
        (0, 7),
        xycoords="axes fraction",
        textcoords="offset points",
        fontsize=8.5,
        color=QUIET,
    )
    figure.savefig(path, format="png")


def _by_main_class(counts: np.ndarray) -> np.ndarray:
    """Clients sorted by most frequent class, then by its share, so that neighbours are similar."""
    share = counts.max(axis=1) / np.maximum(counts.sum(axis=1), 1)
    return counts[np.lexsort((-share, counts.argmax(axis=1)))]


def _bubbles(axes: Axes, counts: np.ndarray) -> str:
    """Draw circles with area proportional to the count, and return the legend.

    The largest circle nearly fills its cell.
    """
    client, label = np.nonzero(counts)
    cell = min(590 / len(counts), 400 / counts.shape[1], 34)
    share = counts[client, label] / max(counts.max(), 1)
    axes.scatter(
        client,
        label,
        s=(0.95 * cell) ** 2 * share,
        c=np.sqrt(share),
        cmap=_colours(2),
        vmin=0,
        vmax=1,
        linewidths=0,
    )
    axes.set_axisbelow(True)
    axes.grid(color=RAMP[0], linewidth=1)
    return f"area proportional to samples; the largest circle is {counts.max():,}"


def _heat_map(axes: Axes, counts: np.ndarray) -> str:
    """Draw a heat map and return the legend."""
    shades = _shade(counts).T
    axes.imshow(shades, _colours(0), aspect="auto", vmin=0, vmax=1, interpolation="nearest")
    return f"darker is more samples, by the square root; the darkest cell is {counts.max():,}"


def _colours(start: int) -> Colormap:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("fedloom", RAMP[start:])


def _frame(axes: Axes, counts: np.ndarray, label: str) -> None:
    clients, classes = counts.shape
    axes.set(xlim=(-0.5, clients - 0.5), ylim=(classes - 0.5, -0.5))
    axes.set_xlabel(label, color=INK)
    axes.set_ylabel("class", color=INK)
    axes.locator_params(integer=True, nbins=12)
    _hide_frame(axes)


def _bars(axes: Axes, totals: np.ndarray, orientation: Literal["vertical", "horizontal"]) -> None:
    """Totals along an edge, drawn as one patch however many there are; up to 80 bars have gaps."""
    gap = 0.1 if len(totals) <= 80 else 0.0
    edges = (np.arange(len(totals))[:, None] + [-0.5 + gap, 0.5 - gap]).ravel()
    heights = np.stack([totals, np.zeros_like(totals)], axis=1).ravel()[:-1]
    axes.stairs(heights, edges, orientation=orientation, fill=True, color=BAR, linewidth=0)
    is_vertical = orientation == "vertical"
    set_label = axes.set_ylabel if is_vertical else axes.set_xlabel
    set_label("samples", color=QUIET, fontsize=8)
    axes.tick_params(labelbottom=not is_vertical, labelleft=is_vertical)
    axes.locator_params(axis="y" if is_vertical else "x", nbins=2)
    _hide_frame(axes)


def _hide_frame(axes: Axes) -> None:
    """No frame and no tick marks: the data show the edges."""
    axes.tick_params(length=0, labelsize=8, colors=QUIET)
    axes.spines[:].set_visible(False)
