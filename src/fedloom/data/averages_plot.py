"""A picture of averaged samples, clients from top to bottom, more samples in an average from left to right."""

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

SIDE = 16  # pixels of an image in a terminal: four of them fit into 80 columns


@dataclass(frozen=True)
class Gallery:
    """Images (clients, columns, C, H, W) from 0 to 1; what stands above the columns and beside the rows."""

    images: Tensor
    columns: Sequence[str]
    rows: Sequence[str]


def pixels(normalise: Normaliser, x: Tensor) -> Tensor:
    """Normalised images as values from 0 to 1, where noise has not carried them beyond."""
    if normalise.scale is None or normalise.shift is None:
        return x
    return (x - normalise.shift) / (255 * normalise.scale)


def terminal(gallery: Gallery, colour: bool = True) -> RenderableType:
    """Two pixels a character, one above the other; without colours, their mean as a shade."""
    rows, columns = gallery.images.shape[:2]
    small = (
        F.adaptive_avg_pool2d(gallery.images.flatten(0, 1), SIDE).clamp(0, 1).expand(-1, 3, -1, -1)
    )
    strips = (
        (small * 255)
        .round()
        .byte()
        .view(rows, columns, 3, SIDE, SIDE)
        .permute(0, 3, 1, 4, 2)
        .numpy()
    )
    lines = [Text("".join(f"{name:<{SIDE + 2}}" for name in gallery.columns), style="bold")]
    for name, strip in zip(gallery.rows, strips, strict=True):
        lines += [
            Text(name),
            *(_line(strip[at], strip[at + 1], colour) for at in range(0, SIDE, 2)),
        ]
    return Group(*lines)


def _line(above: np.ndarray, below: np.ndarray, colour: bool) -> Text:
    line = Text(no_wrap=True)
    for upper, lower in zip(above, below, strict=True):
        for up, low in zip(upper, lower, strict=True):
            shade = GLYPHS[int((up.mean() + low.mean()) / 511 * len(GLYPHS))]
            line.append(*(("▀", f"{_rgb(up)} on {_rgb(low)}") if colour else (shade,)))
        line.append("  ")
    return line


def _rgb(pixel: np.ndarray) -> str:
    return "rgb({},{},{})".format(*pixel)


def png(gallery: Gallery, path: Path, title: str = "") -> None:
    """Every image in full."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError(
            'a picture of averages needs matplotlib; pip install "fedloom[plots]"'
        ) from error
    high, wide = gallery.images.shape[:2]
    figure = Figure(figsize=(1.1 * wide + 1.4, 1.1 * high + 1.0), dpi=150, layout="constrained")
    grid = figure.subplots(high, wide, squeeze=False)
    shown = gallery.images.clamp(0, 1).permute(0, 1, 3, 4, 2).numpy()
    for row, name in enumerate(gallery.rows):
        for column, above in enumerate(gallery.columns):
            axes, image = grid[row, column], shown[row, column]
            axes.imshow(
                image.squeeze(-1) if image.shape[-1] == 1 else image, cmap="gray", vmin=0, vmax=1
            )
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
            if row == 0:
                axes.set_title(above, fontsize=9, color=INK)
        grid[row, 0].set_ylabel(
            name.replace(", ", "\n"), rotation=0, ha="right", va="center", fontsize=9, color=QUIET
        )
    figure.suptitle(title, x=0.02, ha="left", fontsize=12, weight="bold", color=INK)
    figure.savefig(path, format="png")
