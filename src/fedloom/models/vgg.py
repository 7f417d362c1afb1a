"""VGG networks of six 3x3 convolutions and three linear layers, after Simonyan and Zisserman 2015.

FedMLB's `vgg9` adds group norm; FedMix's `vgg` has no norm but dropout.
"""

from __future__ import annotations

from typing import Annotated

from torch import nn

from fedloom.core.chain import Chain
from fedloom.core.spec import Param
from fedloom.models.layers import (
    Groups,
    Norm,
    Shape,
    image_shape,
    initialise,
    make_norm,
    named,
    pooled_relu,
    relu,
)

WIDTHS = (32, 64, 128, 128, 256, 256)
POOLED = (2, 4, 6)  # convolutions followed by a max-pool


def vgg9(shape: Shape, classes: int, groups: Groups = 2) -> Chain:
    """VGG-9 of FedMLB: group norm after every convolution, features pooled to 4x4.

    Convolutions are initialised by He normal (fan-out).
    """
    channels, _, _ = image_shape("vgg9", shape, min_side=8)
    head = named(pool=nn.AdaptiveAvgPool2d(4), **_linears(16 * WIDTHS[-1], classes))
    chain = Chain(_convolutions(channels, norm=make_norm("group", groups)) | {"head": head})
    initialise(chain, "he")
    return chain


def vgg(
    shape: Shape,
    classes: int,
    dropout: Annotated[
        float,
        Param(
            "dropout probability after the 2nd and 3rd pool and before the last layer",
            low=0,
            below=1,
        ),
    ] = 0.1,
) -> Chain:
    """VGG of FedMix: no norm; 3,491,530 parameters on 32x32 colour images of 10 classes."""
    channels, height, width = image_shape("vgg", shape, min_side=8)
    inputs = WIDTHS[-1] * (height // 8) * (width // 8)
    blocks = _convolutions(channels, dropout=dropout)
    blocks["head"] = named(**_linears(inputs, classes, dropout))
    return Chain(blocks)


def _convolutions(
    channels: int, norm: Norm | None = None, dropout: float = 0.0
) -> dict[str, nn.Module]:
    """The six convolutions, one block each, with their norm, ReLU, pool and dropout."""
    blocks: dict[str, nn.Module] = {}
    for number, width in enumerate(WIDTHS, start=1):
        layers: dict[str, nn.Module] = {"conv": nn.Conv2d(channels, width, 3, padding=1)}
        if norm:
            layers["norm"] = norm(width)
        layers |= pooled_relu() if number in POOLED else {"relu": relu()}
        if dropout and number in POOLED[1:]:
            layers["dropout"] = nn.Dropout(dropout)
        blocks[f"conv{number}"] = named(**layers)
        channels = width
    return blocks


def _linears(inputs: int, classes: int, dropout: float = 0.0) -> dict[str, nn.Module]:
    layers: dict[str, nn.Module] = {
        "flatten": nn.Flatten(),
        "fc1": nn.Linear(inputs, 512),
        "relu1": relu(),
        "fc2": nn.Linear(512, 512),
        "relu2": relu(),
    }
    if dropout:
        layers["dropout"] = nn.Dropout(dropout)
    return layers | {"fc3": nn.Linear(512, classes)}
