"""MobileNetV2 for small images, as the FedMLB authors run it.

Inverted bottlenecks of Sandler et al., CVPR 2018. It departs from that paper in four ways: group
norm instead of batch norm, convolutions with bias, a padded 1x1 stem of stride 1 instead of a 3x3
stem of stride 2, and stride 1 instead of 2 in the stage of 160 channels.
"""

from __future__ import annotations

from torch import nn

from fedloom.core.chain import Chain
from fedloom.models.layers import (
    Groups,
    Norm,
    Residual,
    Shape,
    conv_norm,
    image_shape,
    make_norm,
    named,
)

# output channels, expansion, number of bottlenecks, stride of the first
STAGES = ((16, 1, 1, 1), (24, 6, 2, 2), (32, 6, 3, 2), (64, 6, 4, 2), (96, 6, 3, 1), (160, 6, 3, 1))


def mobilenetv2(shape: Shape, classes: int, groups: Groups = 2) -> Chain:
    """MobileNetV2: stem, six stages, and a head that begins with the seventh stage."""
    channels, _, _ = image_shape("mobilenetv2", shape)
    norm = make_norm("group", groups)
    blocks: dict[str, nn.Module] = {
        "stem": nn.Sequential(*conv_norm(channels, 32, 1, norm, padding=1), _relu6())
    }
    inputs = 32
    for number, (width, expansion, count, stride) in enumerate(STAGES, start=1):
        first = _bottleneck(inputs, width, expansion, stride, norm)
        others = [_bottleneck(width, width, expansion, 1, norm) for _ in range(count - 1)]
        blocks[f"stage{number}"] = nn.Sequential(first, *others)
        inputs = width
    return Chain(blocks | {"head": _head(inputs, classes, norm)})


def _relu6() -> nn.Module:
    return nn.ReLU6(inplace=True)


def _bottleneck(inputs: int, outputs: int, expansion: int, stride: int, norm: Norm) -> nn.Module:
    """1x1 expansion, 3x3 depthwise convolution, linear 1x1 projection; residual if shapes agree."""
    inner = inputs * expansion
    body = nn.Sequential(
        *conv_norm(inputs, inner, 1, norm),
        _relu6(),
        *conv_norm(inner, inner, 3, norm, stride=stride, padding=1, groups=inner),
        _relu6(),
        *conv_norm(inner, outputs, 1, norm),
    )
    return Residual(body) if stride == 1 and inputs == outputs else body


def _head(inputs: int, classes: int, norm: Norm) -> nn.Sequential:
    return named(
        stage7=_bottleneck(inputs, 320, 6, 1, norm),
        expand=nn.Sequential(*conv_norm(320, 1280, 1, norm), _relu6()),
        pool=nn.AdaptiveAvgPool2d(1),
        fc=nn.Conv2d(1280, classes, 1),
        flatten=nn.Flatten(),
    )
