"""Random augmentations of image batches (B,C,H,W), uint8 or float.

There is no loop over samples, and every draw comes from the given generator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from fedloom.core.errors import UserError, raise_all, unknown_name
from fedloom.core.spec import Param, Spec, argument_problems, call
from fedloom.core.transfer import to_device
from fedloom.data.dataset import Dataset

Augment = Callable[[Tensor, torch.Generator], Tensor]


def pad_crop(
    padding: Annotated[
        int, Param("pixels of zero padding before the crop; 0 changes nothing", low=0)
    ] = 4,
) -> Augment:
    """Pad with zeros and crop to the original size at a random position."""

    def crop(x: Tensor, generator: torch.Generator) -> Tensor:
        batch, channels, height, width = x.shape
        top, left = _integers(2 * padding + 1, (2, batch), x, generator)
        padded = F.pad(x, (padding,) * 4)
        padded_height, padded_width = padded.shape[2:]
        numbers = torch.arange(batch * channels, device=x.device).view(batch, channels, 1)
        planes = numbers * (padded_height * padded_width)
        rows = torch.arange(height, device=x.device) * padded_width
        corners = (top * padded_width + left).view(batch, 1, 1)
        starts = planes + rows + corners
        # A row of the result is `width` consecutive pixels in memory. The windows overlap and are
        # a view, not a copy.
        windows = padded.view(-1).unfold(0, width, 1)
        return windows.index_select(0, starts.view(-1)).view(x.shape)

    return crop


def flip(
    chance: Annotated[float, Param("probability; 0 changes nothing", low=0, high=1)] = 0.5,
) -> Augment:
    """Mirror horizontally."""

    def mirror(x: Tensor, generator: torch.Generator) -> Tensor:
        is_mirrored = _uniform((len(x),), x, generator) < chance
        both = torch.cat([x, x.flip(3)])
        return both.index_select(0, torch.arange(len(x), device=x.device) + is_mirrored * len(x))

    return mirror


def rotation(
    degrees: Annotated[
        float, Param("largest angle in either direction; 0 changes nothing", low=0, high=180)
    ] = 10.0,
) -> Augment:
    """Rotate about the centre by a uniform angle, nearest pixel, zeros outside the image."""

    def turn(x: Tensor, generator: torch.Generator) -> Tensor:
        angles = (_uniform((len(x),), x, generator) * 2 - 1) * math.radians(degrees)
        cos, sin, zero = angles.cos(), angles.sin(), torch.zeros_like(angles)
        # affine_grid works in units of half the width and half the height, so the sines are scaled
        # by the aspect ratio.
        ratio = x.shape[2] / x.shape[3]
        first_row = torch.stack([cos, -sin * ratio, zero], 1)
        second_row = torch.stack([sin / ratio, cos, zero], 1)
        maps = torch.stack([first_row, second_row], 1)
        real = x if x.is_floating_point() else x.float()
        grid = F.affine_grid(maps.to(real.dtype), list(x.shape), align_corners=False)
        rotated = F.grid_sample(real, grid, "nearest", padding_mode="zeros", align_corners=False)
        return rotated.to(x.dtype)

    return turn


def cutout(
    size: Annotated[int, Param("side of the square in pixels; 0 changes nothing", low=0)] = 8,
) -> Augment:
    """Set a square around a random pixel to zero (DeVries and Taylor, 2017).

    The square may extend beyond the border.
    """

    def black(x: Tensor, generator: torch.Generator) -> Tensor:
        batch, _, height, width = x.shape
        top = _integers(height, (batch,), x, generator) - size // 2
        left = _integers(width, (batch,), x, generator) - size // 2
        rows = _inside(top, size, height).view(batch, 1, height, 1)
        columns = _inside(left, size, width).view(batch, 1, 1, width)
        return x.masked_fill(rows & columns, 0)

    return black


def _inside(starts: Tensor, size: int, length: int) -> Tensor:
    """(B, length): which positions lie in [start, start + size)."""
    distance = torch.arange(length, device=starts.device) - starts[:, None]
    return (distance >= 0) & (distance < size)


def _integers(below: int, shape: tuple[int, ...], x: Tensor, generator: torch.Generator) -> Tensor:
    draws = torch.randint(below, shape, generator=generator, device=generator.device)
    return to_device(draws, x.device)


def _uniform(shape: tuple[int, ...], x: Tensor, generator: torch.Generator) -> Tensor:
    return to_device(torch.rand(shape, generator=generator, device=generator.device), x.device)


AUGMENTS: Mapping[str, Callable[..., Augment]] = MappingProxyType(
    {"pad-crop": pad_crop, "flip": flip, "rotation": rotation, "cutout": cutout}
)


def check(specs: Sequence[Spec]) -> None:
    """Reject unknown names and wrong arguments, all at once."""
    for spec in specs:
        if spec.name not in AUGMENTS:
            raise unknown_name("augmentation", spec.name, AUGMENTS)
    problems = [
        f"{spec.name}: {problem}"
        for spec in specs
        for problem in argument_problems(AUGMENTS[spec.name], spec.args)
    ]
    raise_all(problems, "augmentation")


def check_data(specs: Sequence[Spec], dataset: Dataset) -> None:
    """Reject augmentations of samples that are not images."""
    if specs and len(dataset.shape) != 3:
        listed = ", ".join(spec.name for spec in specs)
        raise UserError(
            f"data.augment: {listed} is for images (channels, height, width), and "
            f"'{dataset.name}' is {dataset.kind} data with samples of shape {dataset.shape}; "
            "leave data.augment out"
        )


def build(specs: Sequence[Spec]) -> Augment | None:
    """The augmentations applied in the given order; None if there are none."""
    check(specs)
    steps = [call("augmentation", spec.name, AUGMENTS[spec.name], spec.args) for spec in specs]

    def apply_all(x: Tensor, generator: torch.Generator) -> Tensor:
        for step in steps:
            x = step(x, generator)
        return x

    return apply_all if steps else None
