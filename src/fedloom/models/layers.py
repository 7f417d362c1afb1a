"""The pieces that several models share: norms, residual blocks, heads, initialisations and checks of the input shape."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Annotated, Literal

from torch import Tensor, nn

from fedloom.core.errors import UserError
from fedloom.core.spec import Param

Shape = tuple[int, ...]
Norm = Callable[[int], nn.Module]

NormKind = Annotated[
    Literal["batch", "group"],
    Param("normalisation: by the batch, or by groups of channels of one sample"),
]
Groups = Annotated[
    int, Param("groups of the group norm, a divisor of every width; unused with batch norm", low=1)
]
InitKind = Annotated[
    Literal["torch", "he", "he-all"],
    Param(
        "initial weights: PyTorch's own, He normal by fan-out for convolutions, or He for all layers"
    ),
]


def named(**layers: nn.Module) -> nn.Sequential:
    """Layers in a row, each under its name."""
    return nn.Sequential(OrderedDict(layers))


def relu() -> nn.Module:
    """Only ever put behind a layer of the same block: it overwrites its input, which saves memory and time."""
    return nn.ReLU(inplace=True)


def pooled_relu() -> dict[str, nn.Module]:
    """ReLU and max-pool by 2, in the order that has less to do: the largest is the largest before and after, gradients too."""
    return {"pool": nn.MaxPool2d(2), "relu": relu()}


def make_norm(kind: str, groups: int) -> Norm:
    """The norm of that kind, for any number of channels."""

    def group_norm(channels: int) -> nn.Module:
        if channels % groups:
            raise UserError(
                f"{groups} groups do not divide {channels} channels; choose another number of groups or another width"
            )
        return nn.GroupNorm(groups, channels)

    return nn.BatchNorm2d if kind == "batch" else group_norm


def conv_norm(
    inputs: int,
    outputs: int,
    size: int,
    norm: Norm,
    *,
    stride: int = 1,
    padding: int = 0,
    groups: int = 1,
) -> list[nn.Module]:
    """A convolution with bias and the norm behind it."""
    return [nn.Conv2d(inputs, outputs, size, stride, padding, groups=groups), norm(outputs)]


class Residual(nn.Module):
    """end(body(x) + shortcut(x)): the branch that a method may drop is `body`."""

    def __init__(
        self, body: nn.Module, shortcut: nn.Module | None = None, end: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.body = body
        self.shortcut = shortcut or nn.Identity()
        self.end = end or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor = self.end(self.body(x) + self.shortcut(x))
        return total


def classifier(channels: int, classes: int) -> nn.Sequential:
    """Global average pool and a linear layer: the head of the convolutional nets."""
    return named(
        pool=nn.AdaptiveAvgPool2d(1), flatten=nn.Flatten(), fc=nn.Linear(channels, classes)
    )


def initialise(model: nn.Module, kind: str) -> None:
    """Overwrite PyTorch's own draw: "he" by fan-out for convolutions, "he-all" also by fan-in for linear layers, biases zero."""
    if kind == "torch":
        return
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(layer, nn.Linear) and kind == "he-all":
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        else:
            continue
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)


def image(model: str, shape: Shape, least: int = 1) -> tuple[int, int, int]:
    """The shape as channels, height and width, or an error that says what the model takes."""
    if len(shape) != 3:
        raise UserError(
            f"model '{model}' takes images (channels, height, width), not samples of shape {shape}; choose mlp, or lstm for text"
        )
    channels, height, width = shape
    if min(height, width) < least:
        raise UserError(
            f"model '{model}' takes images of {least}x{least} pixels or more, not {height}x{width}; enlarge them or choose mlp"
        )
    return channels, height, width
