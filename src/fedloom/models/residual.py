"""What residual nets are made of: stems, the bodies and shortcuts of their blocks, and the line of stages.

The blocks of the chain are the stem, the stages layer1, layer2, ... and the head; every stage ends behind its ReLU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F

from fedloom.core.chain import Chain
from fedloom.core.errors import UserError
from fedloom.models.layers import Norm, Residual, Shape, classifier, image, initialise, named, relu


def residual_chain(
    shape: Shape,
    classes: int,
    blocks: Sequence[int],
    widths: Sequence[int],
    norm: Norm,
    *,
    block: str = "basic",
    shortcut: str = "projection",
    stem: str = "cifar",
    init: str = "torch",
) -> Chain:
    """Any residual net: so many blocks in every stage, of so many channels; stages behind the first halve the image."""
    channels, _, _ = image("resnet", shape)
    parts: dict[str, nn.Module] = {"stem": STEMS[stem](channels, widths[0], norm)}
    unit, inputs = UNITS[block], widths[0]
    for number, (count, width) in enumerate(zip(blocks, widths, strict=True), start=1):
        stride = 1 if number == 1 else 2
        parts[f"layer{number}"] = _stage(
            unit, SHORTCUTS[shortcut], inputs, width, count, stride, norm
        )
        inputs = unit.expansion * width
    chain = Chain(parts | {"head": classifier(inputs, classes)})
    initialise(chain, init)
    return chain


class Unit(NamedTuple):
    """A kind of residual block: the branch with weights, what it multiplies the width by, and its depth."""

    body: Callable[[int, int, int, Norm], nn.Module]
    expansion: int
    convolutions: int


Shortcut = Callable[[int, int, int, Norm], nn.Module]


def _stage(
    unit: Unit, shortcut: Shortcut, inputs: int, width: int, count: int, stride: int, norm: Norm
) -> nn.Sequential:
    outputs = unit.expansion * width
    changes = stride != 1 or inputs != outputs
    first = Residual(
        unit.body(inputs, width, stride, norm),
        shortcut(inputs, outputs, stride, norm) if changes else nn.Identity(),
        relu(),
    )
    others = [
        Residual(unit.body(outputs, width, 1, norm), nn.Identity(), relu())
        for _ in range(count - 1)
    ]
    return nn.Sequential(first, *others)


def _conv(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


def _basic(inputs: int, width: int, stride: int, norm: Norm) -> nn.Sequential:
    return named(
        conv1=_conv(inputs, width, 3, stride),
        norm1=norm(width),
        relu1=relu(),
        conv2=_conv(width, width, 3),
        norm2=norm(width),
    )


def _bottleneck(inputs: int, width: int, stride: int, norm: Norm) -> nn.Sequential:
    return named(
        conv1=_conv(inputs, width, 1),
        norm1=norm(width),
        relu1=relu(),
        conv2=_conv(width, width, 3, stride),
        norm2=norm(width),
        relu2=relu(),
        conv3=_conv(width, 4 * width, 1),
        norm3=norm(4 * width),
    )


UNITS = {"basic": Unit(_basic, 1, 2), "bottleneck": Unit(_bottleneck, 4, 3)}


class Projected(nn.Conv2d):
    """A convolution of single pixels, of which it takes every `stride`-th.

    Of few channels it takes the pixels first, which is the same: with a stride that divides the size, fewer than 8 channels and
    channels last, oneDNN writes past the end of the weights' gradient (torch 2.13, a processor with AVX2 and no more: all such of
    1,386 shapes that were tried, and no other), and the process dies.
    """

    SAFE = 8  # channels

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] >= self.SAFE:
            return super().forward(x)
        rows, columns = self.stride
        return F.conv2d(x[:, :, ::rows, ::columns], self.weight)


def _projection(inputs: int, outputs: int, stride: int, norm: Norm) -> nn.Sequential:
    return named(conv=Projected(inputs, outputs, stride), norm=norm(outputs))


class Pad(nn.Module):
    """Every `stride`-th pixel, and zeros for the channels that are missing; relative, so that it also holds for slimmed inputs."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm) -> None:
        super().__init__()
        if outputs % inputs:
            raise UserError(
                f"shortcut 'pad' cannot widen {inputs} channels to {outputs}, not a multiple; choose 'projection'"
            )
        self.growth = outputs // inputs
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        missing = (self.growth - 1) * x.shape[1]
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, missing))


SHORTCUTS: dict[str, Shortcut] = {"projection": _projection, "pad": Pad}


def _cifar_stem(channels: int, width: int, norm: Norm) -> nn.Sequential:
    return named(conv=_conv(channels, width, 3), norm=norm(width), relu=relu())


def _imagenet_stem(channels: int, width: int, norm: Norm) -> nn.Sequential:
    pool = nn.MaxPool2d(3, stride=2, padding=1)
    return named(conv=_conv(channels, width, 7, 2), norm=norm(width), relu=relu(), pool=pool)


STEMS = {"cifar": _cifar_stem, "imagenet": _imagenet_stem}
