"""Every model by its name, and how one is built: a pure function of a name with arguments, a shape and a key."""

from __future__ import annotations

from collections.abc import Callable

import torch

from fedloom.core.chain import Chain
from fedloom.core.errors import UserError, unknown_name
from fedloom.core.key import Key
from fedloom.core.spec import Spec, call
from fedloom.models.layers import Shape
from fedloom.models.lstm import lstm
from fedloom.models.mobilenet import mobilenetv2
from fedloom.models.resnet import resnet, resnet8, resnet18, resnet20, resnet32, resnet56
from fedloom.models.shufflenet import shufflenet
from fedloom.models.simple import cnn, lenet5, mlp
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
        lstm,
    )
}

_CIFAR, _MNIST = ((3, 32, 32), 100), ((1, 28, 28), 10)
TYPICAL: dict[
    str, tuple[Shape, int]
] = {  # the input a model is counted on when nothing else is said
    **dict.fromkeys(MODELS, _CIFAR),
    **dict.fromkeys(("mlp", "lenet5", "cnn"), _MNIST),
    "lstm": ((80,), 84),
}


def build(
    word: Spec,
    shape: Shape,
    classes: int,
    key: Key,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Chain:
    """The model with the weights that hang on the key, the same for every device and, up to rounding, every type.

    On device "meta" it has shapes but no numbers, for counting and checks.
    """
    if word.name not in MODELS:
        raise unknown_name("model", word.name, MODELS, see="fedloom models")
    if classes < 1:
        raise UserError(
            f"model '{word.name}' needs at least one class, not {classes}; check the labels of the data"
        )
    where = (
        "meta" if torch.device(device).type == "meta" else "cpu"
    )  # draws of a GPU would differ from those of a CPU
    with torch.random.fork_rng(devices=[]), torch.device(where):
        torch.default_generator.manual_seed(key.seed)
        chain: Chain = call(
            "model", word.name, MODELS[word.name], word.args, shape=tuple(shape), classes=classes
        )
    return chain.to(device=device, dtype=dtype)
