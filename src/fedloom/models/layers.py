"""Building blocks shared by several models: norms, residual blocks, heads, initial weights, and
checks of the input shape."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Annotated, Literal

from torch import Tensor, nn

from fedloom.core.errors import UserError
from fedloom.core.spec import Param

Shape = tuple[int, ...]
Norm = Callable[[int], nn.Module]  # channels -> layer

NormKind = Annotated[
    Literal["batch", "group"],
    Param("batch norm, or group norm, which normalises each sample over groups of channels"),
]
Groups = Annotated[
    int, Param("groups of the group norm; must divide every width; unused with batch norm", low=1)
]
InitKind = Annotated[
    Literal["torch", "he", "he-all"],
    Param(
        "initial weights: PyTorch's default; he: He normal (fan-out) for convolutions; "
        "he-all: also He normal (fan-in) for linear layers"
    ),
]


def named(**layers: nn.Module) -> nn.Sequential:
    """A Sequential whose layers have these names."""
    return nn.Sequential(OrderedDict(layers))


def relu() -> nn.Module:
    """An in-place ReLU, which saves memory and time.

    Use it only after another layer of the same block: a block must not overwrite its input, which
    is the output that methods read from the block before.
    """
    return nn.ReLU(inplace=True)


def pooled_relu() -> dict[str, nn.Module]:
    """A 2x2 max-pool followed by ReLU.

    The two commute exactly, in values and in gradients, and in this order ReLU sees a quarter of
    the elements.
    """
    return {"pool": nn.MaxPool2d(2), "relu": relu()}


def make_norm(kind: str, groups: int, axes: int = 2) -> Norm:
    """A function from the number of channels to a norm layer: "batch", or "group" with `groups`.

    axes: 1 for signals, 2 for images, 3 for volumes.
    """

    def group_norm(channels: int) -> nn.Module:
        if channels % groups:
            raise UserError(
                f"{groups} groups do not divide {channels} channels; "
                "choose another number of groups or another width"
            )
        return nn.GroupNorm(groups, channels)

    batch_norms = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
    return batch_norms[axes] if kind == "batch" else group_norm


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
    """A convolution with bias, and the norm after it."""
    return [nn.Conv2d(inputs, outputs, size, stride, padding, groups=groups), norm(outputs)]


class Residual(nn.Module):
    """end(body(x) + shortcut(x)). Stochastic depth drops the branch `body`."""

    def __init__(
        self, body: nn.Module, shortcut: nn.Module | None = None, end: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.body = body
        self.shortcut = shortcut or nn.Identity()
        self.end = end or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.end(self.body(x) + self.shortcut(x))
        return output


def classifier(channels: int, classes: int) -> nn.Sequential:
    """Global average pooling and a linear layer: the head of the convolutional networks."""
    return named(
        pool=nn.AdaptiveAvgPool2d(1), flatten=nn.Flatten(), fc=nn.Linear(channels, classes)
    )


def initialise(model: nn.Module, kind: str) -> None:
    """Draw the initial weights again, as an `InitKind` says; "torch" keeps PyTorch's default.

    "he": He normal by fan-out for convolutions. "he-all": in addition He normal by fan-in for
    linear layers. Biases of the layers drawn become zero.
    """
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


def image_shape(model: str, shape: Shape, min_side: int = 1) -> tuple[int, int, int]:
    """The shape as (channels, height, width); raises UserError if it is no image or too small."""
    if len(shape) != 3:
        raise UserError(
            f"model '{model}' takes images (channels, height, width), not samples of shape "
            f"{shape}; choose {fitting_models(shape)}"
        )
    channels, height, width = shape
    if min(height, width) < min_side:
        raise UserError(
            f"model '{model}' takes images of {min_side}x{min_side} pixels or more, "
            f"not {height}x{width}; enlarge them or choose mlp"
        )
    return channels, height, width


def fitting_models(shape: Shape) -> str:
    """The models that take samples of this shape, for an error message.

    >>> fitting_models((12, 1000))
    'cnn1d for signals, or mlp'
    """
    fitting = {
        1: "mlp, or lstm for text",
        2: "cnn1d for signals, or mlp",
        3: "mlp, lenet5 or a resnet",
        4: "cnn3d for volumes, or mlp",
    }
    return fitting.get(len(shape), "mlp")
