"""Small convolutional networks for signals (channels, length) and for volumes (channels, depth,
height, width): three convolutions, each with a norm, a max-pool of 2 and ReLU, and global average
pooling. They take samples of any size: a max-pool keeps the last value of an odd side.
"""

from __future__ import annotations

from typing import Annotated, Any

from torch import nn

from fedloom.core.chain import Chain
from fedloom.core.errors import UserError
from fedloom.core.spec import Param
from fedloom.models.layers import (
    Groups,
    NormKind,
    Shape,
    fitting_models,
    make_norm,
    named,
    relu,
)

Width = Annotated[
    int, Param("channels of the first convolution; each later one doubles them", low=1)
]
LAYERS: dict[int, tuple[Any, Any, Any]] = {  # by the number of axes besides the channels
    1: (nn.Conv1d, nn.MaxPool1d, nn.AdaptiveAvgPool1d),
    3: (nn.Conv3d, nn.MaxPool3d, nn.AdaptiveAvgPool3d),
}


def cnn1d(
    shape: Shape,
    classes: int,
    width: Width = 16,
    norm: NormKind = "group",
    groups: Groups = 1,
) -> Chain:
    """A small CNN for signals (channels, length), such as an ECG: kernels of length 7, 5 and 3."""
    channels = _channels("cnn1d", "signals (channels, length)", shape, axes=1)
    return _three_convolutions((7, 5, 3), channels, classes, width, norm, groups, axes=1)


def cnn3d(
    shape: Shape,
    classes: int,
    width: Width = 8,
    norm: NormKind = "group",
    groups: Groups = 1,
) -> Chain:
    """A small CNN for volumes (channels, depth, height, width), such as a CT: kernels of 3x3x3."""
    channels = _channels("cnn3d", "volumes (channels, depth, height, width)", shape, axes=3)
    return _three_convolutions((3, 3, 3), channels, classes, width, norm, groups, axes=3)


def _three_convolutions(
    kernels: tuple[int, int, int],
    channels: int,
    classes: int,
    width: int,
    norm: str,
    groups: int,
    axes: int,
) -> Chain:
    conv, max_pool, average_pool = LAYERS[axes]
    make = make_norm(norm, groups, axes)
    blocks: dict[str, nn.Module] = {}
    for number, kernel in enumerate(kernels):
        outputs = width * 2**number
        blocks[f"conv{number + 1}"] = named(
            conv=conv(channels, outputs, kernel, padding=kernel // 2, bias=False),
            norm=make(outputs),
            pool=max_pool(2, ceil_mode=True),
            relu=relu(),
        )
        channels = outputs
    head = named(pool=average_pool(1), flatten=nn.Flatten(), fc=nn.Linear(channels, classes))
    return Chain(blocks | {"head": head})


def _channels(model: str, samples: str, shape: Shape, axes: int) -> int:
    """The number of channels; raises UserError for samples of another kind."""
    if len(shape) != axes + 1:
        raise UserError(
            f"model '{model}' takes {samples}, not samples of shape {shape}; "
            f"choose {fitting_models(shape)}"
        )
    return shape[0]
