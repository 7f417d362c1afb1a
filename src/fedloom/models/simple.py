"""Networks without shortcuts or norms: multilayer perceptron, LeNet-5, and the CNN of FedAvg."""

from __future__ import annotations

import math
from typing import Annotated

from torch import nn

from fedloom.core.chain import Chain
from fedloom.core.spec import Param
from fedloom.models.layers import Shape, image_shape, named, pooled_relu, relu


def mlp(
    shape: Shape,
    classes: int,
    layers: Annotated[int, Param("hidden layers; 0 is softmax regression", low=0, high=1000)] = 2,
    width: Annotated[int, Param("units per hidden layer", low=1)] = 200,
) -> Chain:
    """Multilayer perceptron on the flattened sample, with ReLU.

    Two hidden layers of 200 units are the 2NN of McMahan et al. 2017.
    """
    sizes = [math.prod(shape)] + [width] * layers
    blocks = {f"layer{i + 1}": _dense(sizes[i], width) for i in range(layers)}
    return Chain(blocks | {"head": named(flatten=nn.Flatten(), fc=nn.Linear(sizes[-1], classes))})


def lenet5(
    shape: Shape,
    classes: int,
    padding: Annotated[
        int,
        Param(
            "zeros around the image; 2 turns 28x28 into LeCun's 32x32, 0 is for 32x32 images", low=0
        ),
    ] = 2,
) -> Chain:
    """LeNet-5 of LeCun et al. 1998, with ReLU and max-pooling instead of tanh and subsampling.

    61,706 parameters on 28x28 grey images of 10 classes.
    """
    channels, height, width = image_shape("lenet5", shape, min_side=max(1, 16 - 2 * padding))
    sides = [((side + 2 * padding - 4) // 2 - 4) // 2 for side in (height, width)]
    return Chain(
        {
            "conv1": _conv(channels, 6, padding),
            "conv2": _conv(6, 16, 0),
            "fc1": _dense(16 * math.prod(sides), 120),
            "fc2": _dense(120, 84),
            "head": named(fc=nn.Linear(84, classes)),
        }
    )


def cnn(shape: Shape, classes: int) -> Chain:
    """The CNN of McMahan et al. 2017: 1,663,370 parameters on 28x28 grey images of 10 classes."""
    channels, height, width = image_shape("cnn", shape, min_side=4)
    return Chain(
        {
            "conv1": _conv(channels, 32, 2),
            "conv2": _conv(32, 64, 2),
            "fc1": _dense(64 * (height // 4) * (width // 4), 512),
            "head": named(fc=nn.Linear(512, classes)),
        }
    )


def _dense(inputs: int, outputs: int) -> nn.Sequential:
    return named(flatten=nn.Flatten(), fc=nn.Linear(inputs, outputs), relu=relu())


def _conv(inputs: int, outputs: int, padding: int) -> nn.Sequential:
    return named(conv=nn.Conv2d(inputs, outputs, 5, padding=padding), **pooled_relu())
