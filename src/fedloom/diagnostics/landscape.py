"""The loss around a model on a grid along two directions: as data and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from fedloom.core.errors import UserError
from fedloom.data.partition_plot import INK, QUIET, RAMP
from fedloom.diagnostics.curvature import Surface
from fedloom.diagnostics.time_budget import Go, always

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POINTS = 21  # on each axis; odd, so that the model itself is one of them
SPAN = 0.5  # the length of the way from the model to the edge; the same for every model, so that pictures compare


@dataclass(frozen=True)
class Landscape:
    """loss[i, j] at the weights + steps[i] e0 + steps[j] e1; not a number where there was no time."""

    steps: np.ndarray
    loss: np.ndarray


def landscape(
    surface: Surface, directions: Tensor, span: float = SPAN, points: int = POINTS, go: Go = always
) -> Landscape:
    """The loss along two unit vectors (rows), from the middle outwards."""
    steps, origin = np.linspace(-span, span, points), surface.vector
    loss = np.full((points, points), np.nan)
    for i, j in _outwards(points):
        if not go():
            break
        loss[i, j] = surface.loss(
            origin + float(steps[i]) * directions[0] + float(steps[j]) * directions[1]
        )
    return Landscape(steps, loss)


def _outwards(points: int) -> list[tuple[int, int]]:
    middle = (points - 1) / 2
    cells = [(i, j) for i in range(points) for j in range(points)]
    return sorted(cells, key=lambda c: (c[0] - middle) ** 2 + (c[1] - middle) ** 2)


def png(found: Landscape, values: Sequence[float], path: Path, title: str) -> None:
    """The landscape as a hill and as a map. values: the two eigenvalues, which tell how steep it is at the model."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError(
            'a picture of the landscape needs matplotlib; pip install "fedloom[plots]"'
        ) from None
    figure = Figure(figsize=(11, 4.8), dpi=150, layout="constrained")
    grid = figure.add_gridspec(1, 2, width_ratios=(1, 1.05))
    levels = _levels(found.loss)
    _hill(figure, grid[0, 0], found, levels)
    _map(figure, grid[0, 1], found, levels)
    curved = ", ".join(f"$\\lambda_{k}$ = {v:.3g}" for k, v in enumerate(values[:2]))
    figure.suptitle(title, x=0.01, ha="left", fontsize=13, weight="bold", color=INK)
    figure.text(
        0.99,
        0.985,
        f"loss along the first two eigenvectors, {curved}",
        ha="right",
        va="top",
        fontsize=9,
        color=QUIET,
    )
    figure.savefig(path, format="png")


def _levels(loss: np.ndarray) -> np.ndarray:
    """Heights of the contours, closer together near the bottom, where the model is."""
    low, high = float(np.nanmin(loss)), float(np.nanmax(loss))
    levels: np.ndarray = low + max(high - low, 1e-9) * np.linspace(0, 1, 16) ** 1.6
    return levels


def _colours(levels: np.ndarray) -> dict[str, Any]:
    from matplotlib.colors import BoundaryNorm, LinearSegmentedColormap

    return {
        "cmap": LinearSegmentedColormap.from_list("fedloom", RAMP[::-1]),
        "norm": BoundaryNorm(levels, 256),
    }


def _hill(figure: Figure, cell: Any, found: Landscape, levels: np.ndarray) -> None:
    axes: Any = figure.add_subplot(cell, projection="3d")
    across, along = np.meshgrid(found.steps, found.steps, indexing="ij")
    axes.plot_surface(
        across,
        along,
        found.loss,
        rstride=1,
        cstride=1,
        edgecolor=INK,
        linewidth=0.15,
        **_colours(levels),
    )
    axes.view_init(elev=32, azim=-58)
    axes.set(xlabel="$e_0$", ylabel="$e_1$", zlabel="loss")
    axes.tick_params(labelsize=7, colors=QUIET, pad=0)
    for axis in (axes.xaxis, axes.yaxis, axes.zaxis):
        axis.pane.set_facecolor("white")
        axis.pane.set_edgecolor(RAMP[1])
        axis._axinfo["grid"].update(color=RAMP[1], linewidth=0.5)


def _map(figure: Figure, cell: Any, found: Landscape, levels: np.ndarray) -> None:
    axes = figure.add_subplot(cell)
    heights = np.ma.masked_invalid(found.loss.T)
    filled = axes.contourf(found.steps, found.steps, heights, levels=levels, **_colours(levels))
    axes.contour(found.steps, found.steps, heights, levels=levels, colors=INK, linewidths=0.3)
    axes.plot(0, 0, "o", color="white", markeredgecolor=INK, markersize=6)
    axes.annotate("model", (0, 0), (7, 6), textcoords="offset points", fontsize=8, color="white")
    axes.set(xlabel="$e_0$", ylabel="$e_1$", aspect="equal")
    axes.tick_params(length=0, labelsize=8, colors=QUIET)
    axes.spines[:].set_visible(False)
    bar = figure.colorbar(filled, ax=axes, shrink=0.9, format="%.3g")
    bar.outline.set_visible(False)
    bar.ax.tick_params(which="both", length=0, labelsize=8, colors=QUIET)
