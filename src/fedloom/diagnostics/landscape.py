"""The loss landscape: the loss on a grid around a model along two directions, and its picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from fedloom.core.errors import UserError
from fedloom.data.partition_plot import INK, QUIET, RAMP
from fedloom.diagnostics.curvature import LossSurface
from fedloom.diagnostics.time_budget import KeepGoing, unlimited

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GRID_POINTS = 21  # per axis; odd, so that the model itself is on the grid
SPAN = 0.5  # distance from the model to the edge; the same for every model, to compare pictures


@dataclass(frozen=True)
class Landscape:
    """loss[i, j] is the loss at weights + steps[i] e0 + steps[j] e1; NaN where the time ran out."""

    steps: np.ndarray
    loss: np.ndarray


def landscape(
    surface: LossSurface,
    directions: Tensor,
    span: float = SPAN,
    points: int = GRID_POINTS,
    keep_going: KeepGoing = unlimited,
) -> Landscape:
    """The loss on a grid along two unit vectors (the rows of `directions`), from the centre out."""
    steps, origin = np.linspace(-span, span, points), surface.weight_vector
    loss = np.full((points, points), np.nan)
    for i, j in _from_the_centre(points):
        if not keep_going():
            break
        loss[i, j] = surface.loss(
            origin + float(steps[i]) * directions[0] + float(steps[j]) * directions[1]
        )
    return Landscape(steps, loss)


def _from_the_centre(points: int) -> list[tuple[int, int]]:
    """The cells of the grid, ordered by their distance from the centre."""
    centre = (points - 1) / 2
    cells = [(i, j) for i in range(points) for j in range(points)]
    return sorted(cells, key=lambda c: (c[0] - centre) ** 2 + (c[1] - centre) ** 2)


def save_png(data: Landscape, eigenvalues: Sequence[float], path: Path, title: str) -> None:
    """Draw the landscape as a 3D surface and as a contour map.

    eigenvalues: those of the two directions, printed above the picture.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError(
            'a picture of the landscape needs matplotlib; pip install "fedloom[plots]"'
        ) from None
    figure = Figure(figsize=(11, 4.8), dpi=150, layout="constrained")
    grid = figure.add_gridspec(1, 2, width_ratios=(1, 1.05))
    levels = _levels(data.loss)
    _draw_surface(figure, grid[0, 0], data, levels)
    _draw_contours(figure, grid[0, 1], data, levels)
    values = ", ".join(f"$\\lambda_{k}$ = {v:.3g}" for k, v in enumerate(eigenvalues[:2]))
    figure.suptitle(title, x=0.01, ha="left", fontsize=13, weight="bold", color=INK)
    caption = f"loss along the first two eigenvectors, {values}"
    figure.text(0.99, 0.985, caption, ha="right", va="top", fontsize=9, color=QUIET)
    figure.savefig(path, format="png")


def _levels(loss: np.ndarray) -> np.ndarray:
    """Heights of the contours, denser near the minimum, where the model is."""
    low, high = float(np.nanmin(loss)), float(np.nanmax(loss))
    levels: np.ndarray = low + max(high - low, 1e-9) * np.linspace(0, 1, 16) ** 1.6
    return levels


def _colours(levels: np.ndarray) -> dict[str, Any]:
    from matplotlib.colors import BoundaryNorm, LinearSegmentedColormap

    return {
        "cmap": LinearSegmentedColormap.from_list("fedloom", RAMP[::-1]),
        "norm": BoundaryNorm(levels, 256),
    }


def _draw_surface(figure: Figure, cell: Any, data: Landscape, levels: np.ndarray) -> None:
    axes: Any = figure.add_subplot(cell, projection="3d")
    x, y = np.meshgrid(data.steps, data.steps, indexing="ij")
    style = {"edgecolor": INK, "linewidth": 0.15, **_colours(levels)}
    axes.plot_surface(x, y, data.loss, rstride=1, cstride=1, **style)
    axes.view_init(elev=32, azim=-58)
    axes.set(xlabel="$e_0$", ylabel="$e_1$", zlabel="loss")
    axes.tick_params(labelsize=7, colors=QUIET, pad=0)
    for axis in (axes.xaxis, axes.yaxis, axes.zaxis):
        axis.pane.set_facecolor("white")
        axis.pane.set_edgecolor(RAMP[1])
        axis._axinfo["grid"].update(color=RAMP[1], linewidth=0.5)


def _draw_contours(figure: Figure, cell: Any, data: Landscape, levels: np.ndarray) -> None:
    axes = figure.add_subplot(cell)
    heights = np.ma.masked_invalid(data.loss.T)
    filled = axes.contourf(data.steps, data.steps, heights, levels=levels, **_colours(levels))
    axes.contour(data.steps, data.steps, heights, levels=levels, colors=INK, linewidths=0.3)
    axes.plot(0, 0, "o", color="white", markeredgecolor=INK, markersize=6)
    axes.annotate("model", (0, 0), (7, 6), textcoords="offset points", fontsize=8, color="white")
    axes.set(xlabel="$e_0$", ylabel="$e_1$", aspect="equal")
    axes.tick_params(length=0, labelsize=8, colors=QUIET)
    axes.spines[:].set_visible(False)
    bar = figure.colorbar(filled, ax=axes, shrink=0.9, format="%.3g")
    bar.outline.set_visible(False)
    bar.ax.tick_params(which="both", length=0, labelsize=8, colors=QUIET)
