"""The registered models, and `build`, which makes one from its name, arguments, shape and key."""

from __future__ import annotations

from collections.abc import Callable

import torch

from fedloom.core.chain import Chain
from fedloom.core.errors import UserError, raise_all, unknown_name
from fedloom.core.key import Key
from fedloom.core.spec import Spec, argument_problems
from fedloom.models.layers import Shape
from fedloom.models.lstm import lstm
from fedloom.models.mobilenet import mobilenetv2
from fedloom.models.resnet import resnet, resnet8, resnet18, resnet20, resnet32, resnet56
from fedloom.models.shufflenet import shufflenet
from fedloom.models.simple import cnn, lenet5, mlp
from fedloom.models.small_cnn import cnn1d, cnn3d
from fedloom.models.squeezenet import squeezenet
from fedloom.models.vgg import vgg, vgg9

MODELS: dict[str, Callable[..., Chain]] = {
    f.__name__: f
    for f in (
        mlp,
        lenet5,
        cnn,
        resnet,
        resnet8,
        resnet20,
        resnet32,
        resnet56,
        resnet18,
        vgg9,
        vgg,
        mobilenetv2,
        shufflenet,
        squeezenet,
        cnn1d,
        cnn3d,
        lstm,
    )
}

_GIVEN = frozenset({"shape", "classes"})  # parameters that come from the data
_CIFAR100, _MNIST, _SHAKESPEARE = ((3, 32, 32), 100), ((1, 28, 28), 10), ((80,), 84)
_ECG, _SCAN = ((12, 1000), 5), ((1, 28, 28, 28), 11)  # PTB-XL at 100 Hz, OrganMNIST3D

# Shape of a sample and number of classes on which a model is described by default.
TYPICAL_INPUT: dict[str, tuple[Shape, int]] = {
    **dict.fromkeys(MODELS, _CIFAR100),
    **dict.fromkeys(("mlp", "lenet5", "cnn"), _MNIST),
    "cnn1d": _ECG,
    "cnn3d": _SCAN,
    "lstm": _SHAKESPEARE,
}


def check(spec: Spec) -> None:
    """Raise UserError for an unknown name or wrong arguments, before there are any data."""
    if spec.name not in MODELS:
        raise unknown_name("model", spec.name, MODELS, see="fedloom models")
    raise_all(argument_problems(MODELS[spec.name], spec.args, _GIVEN), f"model '{spec.name}'")


def build(
    spec: Spec,
    shape: Shape,
    classes: int,
    key: Key,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Chain:
    """The model with initial weights drawn from the key.

    The weights are the same on every device and, up to rounding, in every dtype. On device "meta"
    the model has shapes but no values, for counting and checks. Raises UserError for an unknown
    name, bad arguments, or an input that the model cannot take.
    """
    check(spec)
    if classes < 1:
        raise UserError(
            f"model '{spec.name}' needs at least one class, not {classes}; "
            "check the labels of the data"
        )
    # A GPU's generator draws other numbers, so the weights are always drawn on the CPU.
    draw_on = "meta" if torch.device(device).type == "meta" else "cpu"
    with torch.random.fork_rng(devices=[]), torch.device(draw_on):
        torch.default_generator.manual_seed(key.seed)
        chain = MODELS[spec.name](shape=tuple(shape), classes=classes, **spec.args)
    return chain.to(device=device, dtype=dtype)
