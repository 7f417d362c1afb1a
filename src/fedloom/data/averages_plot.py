"""A plot of averaged samples: one row per client, more samples per average from left to right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch.nn.functional as F
from rich.console import Group, RenderableType
from rich.text import Text
from torch import Tensor

from fedloom.core.errors import UserError
from fedloom.data.client import Normaliser
from fedloom.data.partition_plot import GLYPHS, INK, QUIET

SIDE = 16  # pixels per image side in a terminal: four images fit into 80 columns


@dataclass(frozen=True)
class ImageGrid:
    """Images (clients, columns, C, H, W) in [0, 1], with titles of the columns and of the rows."""

    images: Tensor
    columns: Sequence[str]
    rows: Sequence[str]


def denormalised(normalise: Normaliser, x: Tensor) -> Tensor:
    """Normalised images as values in [0, 1], unless noise has moved them outside."""
    if normalise.scale is None or normalise.shift is None:
        return x
    return (x - normalise.shift) / (255 * normalise.scale)


def terminal(grid: ImageGrid, colour: bool = True) -> RenderableType:
    """Two pixels per character, one above the other; without colour, their mean as a shade."""
    rows, columns = grid.images.shape[:2]
    small = F.adaptive_avg_pool2d(grid.images.flatten(0, 1), SIDE)
    rgb = (small.clamp(0, 1).expand(-1, 3, -1, -1) * 255).round().byte()
    # (row of the grid, row of pixels, column of the grid, column of pixels, channel)
    strips = rgb.view(rows, columns, 3, SIDE, SIDE).permute(0, 3, 1, 4, 2).numpy()
    lines = [Text("".join(f"{name:<{SIDE + 2}}" for name in grid.columns), style="bold")]
    for name, strip in zip(grid.rows, strips, strict=True):
        lines.append(Text(name))
        lines += [_line(strip[y], strip[y + 1], colour) for y in range(0, SIDE, 2)]
    return Group(*lines)


def _line(above: np.ndarray, below: np.ndarray, colour: bool) -> Text:
    """One line of text from two rows of pixels."""
    line = Text(no_wrap=True)
    for upper_image, lower_image in zip(above, below, strict=True):
        for upper, lower in zip(upper_image, lower_image, strict=True):
            if colour:
                line.append("▀", f"{_rgb(upper)} on {_rgb(lower)}")
            else:
                brightness = (upper.mean() + lower.mean()) / 511
                line.append(GLYPHS[int(brightness * len(GLYPHS))])
        line.append("  ")
    return line


def _rgb(pixel: np.ndarray) -> str:
    return "rgb({},{},{})".format(*pixel)


def save_png(grid: ImageGrid, path: Path, title: str = "") -> None:
    """Write all images at full resolution to a PNG file."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError(
            'a plot of averages needs matplotlib; install it with: pip install "fedloom[plots]"'
        ) from error
    rows, columns = grid.images.shape[:2]
    figure = Figure(figsize=(1.1 * columns + 1.4, 1.1 * rows + 1.0), dpi=150, layout="constrained")
    all_axes = figure.subplots(rows, columns, squeeze=False)
    shown = grid.images.clamp(0, 1).permute(0, 1, 3, 4, 2).numpy()
    for axes, image in zip(all_axes.flat, shown.reshape(-1, *shown.shape[2:]), strict=True):
        grey_or_rgb = image.squeeze(-1) if image.shape[-1] == 1 else image
        axes.imshow(grey_or_rgb, cmap="gray", vmin=0, vmax=1)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
    for axes, name in zip(all_axes[0], grid.columns, strict=True):
        axes.set_title(name, fontsize=9, color=INK)
    for axes, name in zip(all_axes[:, 0], grid.rows, strict=True):
        label = name.replace(", ", "\n")
        axes.set_ylabel(label, rotation=0, ha="right", va="center", fontsize=9, color=QUIET)
    figure.suptitle(title, x=0.02, ha="left", fontsize=12, weight="bold", color=INK)
    figure.savefig(path, format="png")
