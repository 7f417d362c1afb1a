"""Residual networks in general: stems, residual branches, shortcuts, and the chain of stages.

The blocks of the chain are the stem, the stages layer1, layer2, ... and the head. Every stage ends
with the ReLU of its last residual block.
Reference: He et al., Deep Residual Learning for Image Recognition, CVPR 2016.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F

from fedloom.core.chain import Chain
from fedloom.core.errors import UserError
from fedloom.models.layers import (
    Norm,
    Residual,
    Shape,
    classifier,
    image_shape,
    initialise,
    named,
    relu,
)


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
    """A residual network with `blocks[i]` residual blocks of `widths[i]` channels in stage i.

    Every stage but the first halves the image. block, shortcut, stem: keys of BRANCHES, SHORTCUTS
    and STEMS; init: see `initialise`.
    """
    channels, _, _ = image_shape("resnet", shape)
    parts: dict[str, nn.Module] = {"stem": STEMS[stem](channels, widths[0], norm)}
    branch, inputs = BRANCHES[block], widths[0]
    for number, (count, width) in enumerate(zip(blocks, widths, strict=True), start=1):
        stride = 1 if number == 1 else 2
        parts[f"layer{number}"] = _stage(
            branch, SHORTCUTS[shortcut], inputs, width, count, stride, norm
        )
        inputs = branch.expansion * width
    chain = Chain(parts | {"head": classifier(inputs, classes)})
    initialise(chain, init)
    return chain


class Branch(NamedTuple):
    """A kind of residual branch.

    build: from (inputs, width, stride, norm). expansion: output channels as a multiple of the
    width. convolutions: its depth.
    """

    build: Callable[[int, int, int, Norm], nn.Module]
    expansion: int
    convolutions: int


Shortcut = Callable[[int, int, int, Norm], nn.Module]  # (inputs, outputs, stride, norm) -> layer


def _stage(
    branch: Branch, shortcut: Shortcut, inputs: int, width: int, count: int, stride: int, norm: Norm
) -> nn.Sequential:
    outputs = branch.expansion * width
    changes_shape = stride != 1 or inputs != outputs
    first = Residual(
        branch.build(inputs, width, stride, norm),
        shortcut(inputs, outputs, stride, norm) if changes_shape else nn.Identity(),
        relu(),
    )
    others = [
        Residual(branch.build(outputs, width, 1, norm), nn.Identity(), relu())
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


BRANCHES = {"basic": Branch(_basic, 1, 2), "bottleneck": Branch(_bottleneck, 4, 3)}


class ShortcutConv(nn.Conv2d):
    """The 1x1 convolution with stride of a projection shortcut (option B of He et al.).

    With fewer than SAFE_CHANNELS input channels it subsamples the pixels first and convolves then,
    which is the same function. This avoids a crash: with channels last, a stride that divides the
    image size and fewer than 8 channels, oneDNN writes past the end of the weight gradient (torch
    2.13 on a processor with AVX2 but not AVX-512; of 1,386 shapes tried exactly these failed).
    """

    SAFE_CHANNELS = 8

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] >= self.SAFE_CHANNELS:
            return super().forward(x)
        rows, columns = self.stride
        return F.conv2d(x[:, :, ::rows, ::columns], self.weight)


def _projection(inputs: int, outputs: int, stride: int, norm: Norm) -> nn.Sequential:
    return named(conv=ShortcutConv(inputs, outputs, stride), norm=norm(outputs))


class PadShortcut(nn.Module):
    """A shortcut without weights: subsampled pixels, and zeros for the added channels (option A).

    It multiplies the number of channels, rather than filling up to a fixed one, so that it also
    fits slimmed inputs (models/subnetwork.py).
    """

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm) -> None:
        super().__init__()
        if outputs % inputs:
            raise UserError(
                f"shortcut 'pad' cannot widen {inputs} channels to {outputs}, not a multiple; "
                "choose 'projection'"
            )
        self.growth = outputs // inputs
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        missing = (self.growth - 1) * x.shape[1]
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, missing))


SHORTCUTS: dict[str, Shortcut] = {"projection": _projection, "pad": PadShortcut}


def _cifar_stem(channels: int, width: int, norm: Norm) -> nn.Sequential:
    return named(conv=_conv(channels, width, 3), norm=norm(width), relu=relu())


def _imagenet_stem(channels: int, width: int, norm: Norm) -> nn.Sequential:
    pool = nn.MaxPool2d(3, stride=2, padding=1)
    return named(conv=_conv(channels, width, 7, 2), norm=norm(width), relu=relu(), pool=pool)


STEMS = {"cifar": _cifar_stem, "imagenet": _imagenet_stem}
