"""Random changes of image batches (B,C,H,W), uint8 or float: no loop over samples, every draw from the generator given."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from fedloom.core.errors import raise_all, unknown_name
from fedloom.core.spec import Param, Spec, argument_problems, call

Augment = Callable[[Tensor, torch.Generator], Tensor]


def pad_crop(
    padding: Annotated[
        int, Param("zeros around the image before the cut; 0 changes nothing", low=0)
    ] = 4,
) -> Augment:
    """Pad with zeros and cut the old size out at a random place."""

    def crop(x: Tensor, generator: torch.Generator) -> Tensor:
        batch, channels, height, width = x.shape
        top, left = _integers(2 * padding + 1, (2, batch), x, generator)
        padded = F.pad(x, (padding,) * 4)
        high, wide = padded.shape[2:]
        planes = torch.arange(batch * channels, device=x.device).view(batch, channels, 1) * (
            high * wide
        )
        starts = (
            planes
            + torch.arange(height, device=x.device) * wide
            + (top * wide + left).view(batch, 1, 1)
        )
        # A row of the result is a run of `width` pixels in memory; the windows overlap and are a view, not a copy.
        windows = padded.view(-1).unfold(0, width, 1)
        return windows.index_select(0, starts.view(-1)).view(x.shape)

    return crop


def flip(
    chance: Annotated[float, Param("how often; 0 changes nothing", low=0, high=1)] = 0.5,
) -> Augment:
    """Mirror left and right."""

    def mirror(x: Tensor, generator: torch.Generator) -> Tensor:
        mirrored = _uniform((len(x),), x, generator) < chance
        both = torch.cat([x, x.flip(3)])
        return both.index_select(0, torch.arange(len(x), device=x.device) + mirrored * len(x))

    return mirror


def rotation(
    degrees: Annotated[
        float, Param("largest angle to either side; 0 changes nothing", low=0, high=180)
    ] = 10.0,
) -> Augment:
    """Turn about the centre by a uniform angle, nearest pixel, zeros from outside."""

    def turn(x: Tensor, generator: torch.Generator) -> Tensor:
        angles = (_uniform((len(x),), x, generator) * 2 - 1) * math.radians(degrees)
        cos, sin, zero = angles.cos(), angles.sin(), torch.zeros_like(angles)
        # affine_grid works in units of half the width and half the height, so the sines carry the ratio of the sides.
        ratio = x.shape[2] / x.shape[3]
        maps = torch.stack(
            [torch.stack([cos, -sin * ratio, zero], 1), torch.stack([sin / ratio, cos, zero], 1)], 1
        )
        real = x if x.is_floating_point() else x.float()
        grid = F.affine_grid(maps.to(real.dtype), list(x.shape), align_corners=False)
        return F.grid_sample(
            real, grid, mode="nearest", padding_mode="zeros", align_corners=False
        ).to(x.dtype)

    return turn


def cutout(
    size: Annotated[int, Param("side of the square; 0 changes nothing", low=0)] = 8,
) -> Augment:
    """Black out a square around a random pixel; it may reach over the border (DeVries and Taylor, 2017)."""

    def black(x: Tensor, generator: torch.Generator) -> Tensor:
        batch, _, height, width = x.shape
        inside = [
            _inside(_integers(length, (batch,), x, generator) - size // 2, size, length).view(
                batch, 1, *shape
            )
            for length, shape in ((height, (height, 1)), (width, (1, width)))
        ]
        return x.masked_fill(inside[0] & inside[1], 0)

    return black


def _inside(starts: Tensor, size: int, length: int) -> Tensor:
    """(B, length): which positions lie in [start, start + size)."""
    distance = torch.arange(length, device=starts.device) - starts[:, None]
    return (distance >= 0) & (distance < size)


def _integers(below: int, shape: tuple[int, ...], x: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randint(below, shape, generator=generator, device=generator.device).to(x.device)


def _uniform(shape: tuple[int, ...], x: Tensor, generator: torch.Generator) -> Tensor:
    return torch.rand(shape, generator=generator, device=generator.device).to(x.device)


AUGMENTS: Mapping[str, Callable[..., Augment]] = MappingProxyType(
    {"pad-crop": pad_crop, "flip": flip, "rotation": rotation, "cutout": cutout}
)


def check(words: Sequence[Spec]) -> None:
    """Refuse unknown names and wrong arguments, all at once."""
    for word in words:
        if word.name not in AUGMENTS:
            raise unknown_name("augmentation", word.name, AUGMENTS)
    raise_all(
        [f"{w.name}: {c}" for w in words for c in argument_problems(AUGMENTS[w.name], w.args)],
        "augmentation",
    )


def build(words: Sequence[Spec]) -> Augment | None:
    """The augmentations one after the other, in the order given; None if there are none."""
    check(words)
    steps = [call("augmentation", word.name, AUGMENTS[word.name], word.args) for word in words]

    def all_in_turn(x: Tensor, generator: torch.Generator) -> Tensor:
        for step in steps:
            x = step(x, generator)
        return x

    return all_in_turn if steps else None
