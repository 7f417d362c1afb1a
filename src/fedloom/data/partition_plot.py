"""A picture of a partition, clients by classes: blocks in a terminal, bubbles or a heat map in a PNG."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from fedloom.core.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

# Light to dark blue, told apart by lightness alone: the same for every kind of colour vision, and in grey.
RAMP = ("#f3f6fa", "#d3e2f1", "#9fc3e2", "#629bcb", "#2f6fac", "#134782", "#08264d")
GLYPHS = " ░▒▓█"  # hidden under the colour, and what is seen where there is none
INK, QUIET, BAR = "#1c2733", "#6b7885", "#a9b7c6"
MOST_BUBBLES = 600  # above this many cells circles overlap or vanish, and the heat map takes over


def terminal(counts: np.ndarray, rows: int = 24, columns: int = 50) -> RenderableType:
    """One line a client, one block a class, darker for more samples.

    Of many clients one in so many is shown, and that is said: means of neighbours would hide the differences sought.
    """
    step, per_block = -(-len(counts) // rows), -(-counts.shape[1] // columns)
    grid = np.add.reduceat(counts[::step], np.arange(0, counts.shape[1], per_block), axis=1)
    sizes, width = grid.sum(axis=1), len(str(len(counts) - 1))
    lines = [
        _line(f"{i * step:>{width}}", shade, size, sizes.max())
        for i, (shade, size) in enumerate(zip(_shade(grid), sizes, strict=True))
    ]
    return Group(_caption(counts, step, per_block), *lines)


def _shade(counts: np.ndarray) -> np.ndarray:
    """0 to 1 by the square root, so that a client's rare classes remain visible."""
    shade: np.ndarray = np.sqrt(counts / max(counts.max(), 1))
    return shade


def _caption(counts: np.ndarray, step: int, per_block: int) -> Text:
    said = f"{len(counts):,} clients by {counts.shape[1]} classes, {int(counts.sum()):,} samples; darker is more (square root)"
    said += f"\nshown: one client in {step}" if step > 1 else ""
    said += f"\na block is the sum of {per_block} classes" if per_block > 1 else ""
    return Text(said)


def _line(name: str, shade: np.ndarray, size: float, largest: float) -> Text:
    line = Text(f"{name} ", no_wrap=True)
    for value in shade:
        colour = RAMP[_level(value, len(RAMP))]
        line.append(
            GLYPHS[_level(value, len(GLYPHS))] * (2 if len(shade) <= 20 else 1),
            style=f"{colour} on {colour}",
        )
    line.append(f" {'▇' * max(round(12 * size / max(largest, 1)), int(size > 0))}", style=BAR)
    return line.append(f" {size:,.0f}")


def _level(value: float, levels: int) -> int:
    """0 for nothing, else 1 to levels - 1."""
    return 0 if value == 0 else 1 + min(int(value * (levels - 1)), levels - 2)


def png(counts: np.ndarray, path: Path, title: str = "") -> None:
    """Clients from left to right, classes from top to bottom; above the size of each client, beside the total of each class."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError(
            'a picture of a partition needs matplotlib; pip install "fedloom[plots]"'
        ) from error
    few = counts.size <= MOST_BUBBLES
    shown = counts if few else _by_main_class(counts)
    tall = float(np.clip(2.6 + 0.3 * counts.shape[1], 4.5, 8.5))
    figure = Figure(figsize=(10, tall), dpi=150, layout="constrained")
    grid = figure.add_gridspec(2, 2, width_ratios=(12, 1), height_ratios=(1, 1.4 * tall - 2.4))
    main = figure.add_subplot(grid[1, 0])
    said = _bubbles(main, shown) if few else _heat(main, shown)
    _frame(main, shown, "client" if few else "clients, ordered by their most frequent class")
    above, beside = (
        figure.add_subplot(grid[0, 0], sharex=main),
        figure.add_subplot(grid[1, 1], sharey=main),
    )
    _bars(above, shown.sum(axis=1), "vertical")
    _bars(beside, shown.sum(axis=0), "horizontal")
    heading = title or f"{len(counts):,} clients by {counts.shape[1]} classes"
    above.set_title(heading, loc="left", fontsize=13, weight="bold", color=INK, pad=22)
    above.annotate(
        said,
        (0, 1),
        (0, 7),
        xycoords="axes fraction",
        textcoords="offset points",
        fontsize=8.5,
        color=QUIET,
    )
    figure.savefig(path, format="png")


def _by_main_class(counts: np.ndarray) -> np.ndarray:
    """The clients in an order in which neighbours are alike: by most frequent class, then by its share."""
    share = counts.max(axis=1) / np.maximum(counts.sum(axis=1), 1)
    return counts[np.lexsort((-share, counts.argmax(axis=1)))]


def _bubbles(axes: Axes, counts: np.ndarray) -> str:
    """Area proportional to the count; the largest circle nearly fills its cell."""
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
    return f"area in proportion to samples; the largest circle is {counts.max():,}"


def _heat(axes: Axes, counts: np.ndarray) -> str:
    axes.imshow(
        _shade(counts).T, aspect="auto", cmap=_colours(0), vmin=0, vmax=1, interpolation="nearest"
    )
    return f"darker is more samples, by the square root; the darkest cell is {counts.max():,}"


def _colours(start: int) -> Colormap:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("fedloom", RAMP[start:])


def _frame(axes: Axes, counts: np.ndarray, across: str) -> None:
    clients, classes = counts.shape
    axes.set(xlim=(-0.5, clients - 0.5), ylim=(classes - 0.5, -0.5))
    axes.set_xlabel(across, color=INK)
    axes.set_ylabel("class", color=INK)
    axes.locator_params(integer=True, nbins=12)
    _quiet(axes)


def _bars(axes: Axes, totals: np.ndarray, orientation: Literal["vertical", "horizontal"]) -> None:
    """Totals along an edge: one patch however many there are, with gaps between them while they are few."""
    gap = 0.1 if len(totals) <= 80 else 0.0
    edges = (np.arange(len(totals))[:, None] + [-0.5 + gap, 0.5 - gap]).ravel()
    heights = np.stack([totals, np.zeros_like(totals)], axis=1).ravel()[:-1]
    axes.stairs(heights, edges, orientation=orientation, fill=True, color=BAR, linewidth=0)
    upright = orientation == "vertical"
    (axes.set_ylabel if upright else axes.set_xlabel)("samples", color=QUIET, fontsize=8)
    axes.tick_params(labelbottom=not upright, labelleft=upright)
    axes.locator_params(axis="y" if upright else "x", nbins=2)
    _quiet(axes)


def _quiet(axes: Axes) -> None:
    """No frame and no tick marks; the data draw the edges."""
    axes.tick_params(length=0, labelsize=8, colors=QUIET)
    axes.spines[:].set_visible(False)
