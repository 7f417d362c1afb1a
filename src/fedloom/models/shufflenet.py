"""ShuffleNet v1 with three groups for small images, as the FedMLB authors run it.

Zhang et al., CVPR 2018. It departs from that paper in four ways: group norm instead of batch norm,
convolutions with bias, a stem of stride 1 without max-pool, and a first pointwise convolution that
is grouped in every stage, also in the first.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.models.layers import (
    Groups,
    Norm,
    Residual,
    Shape,
    classifier,
    conv_norm,
    image_shape,
    make_norm,
    relu,
)

POINTWISE_GROUPS = 3  # g in the paper
STAGES = ((240, 4), (480, 8), (960, 4))  # output channels, units


def shufflenet(shape: Shape, classes: int, groups: Groups = 2) -> Chain:
    """ShuffleNet v1, g=3: stem, three stages of stride 2, head."""
    channels, _, _ = image_shape("shufflenet", shape)
    norm = make_norm("group", groups)
    blocks: dict[str, nn.Module] = {
        "stem": nn.Sequential(*conv_norm(channels, 24, 3, norm, padding=1), relu())
    }
    inputs = 24
    for number, (width, count) in enumerate(STAGES, start=2):
        first = DownsamplingUnit(_unit(inputs, width - inputs, width // 4, 2, norm))
        others = [
            Residual(_unit(width, width, width // 4, 1, norm), end=relu()) for _ in range(count - 1)
        ]
        blocks[f"stage{number}"] = nn.Sequential(first, *others)
        inputs = width
    return Chain(blocks | {"head": classifier(inputs, classes)})


def _unit(inputs: int, outputs: int, inner: int, stride: int, norm: Norm) -> nn.Sequential:
    """Grouped 1x1 convolution, channel shuffle, 3x3 depthwise and grouped 1x1 convolution."""
    return nn.Sequential(
        *conv_norm(inputs, inner, 1, norm, groups=POINTWISE_GROUPS),
        relu(),
        nn.ChannelShuffle(POINTWISE_GROUPS),
        *conv_norm(inner, inner, 3, norm, stride=stride, padding=1, groups=inner),
        *conv_norm(inner, outputs, 1, norm, groups=POINTWISE_GROUPS),
    )


class DownsamplingUnit(nn.Module):
    """relu(concat(pool(x), body(x))): halves the image and adds the channels of the body."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body
        self.pool = nn.AvgPool2d(3, stride=2, padding=1)
        self.end = relu()

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.end(torch.cat([self.pool(x), self.body(x)], dim=1))
        return output
