"""SqueezeNet with simple bypass for small images, as the FedMLB authors run it.

Iandola et al. 2016. It departs from that paper in four ways: group norm after every convolution but
the classifier, a 3x3 stem of stride 1, 2x2 max-pools, and no dropout. Fire modules 2 to 8 are one
block of the chain each; the ninth begins the head.
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
    conv_norm,
    image_shape,
    make_norm,
    named,
    relu,
)

# fire module: output channels; where they equal the input channels there is a bypass
FIRES = {2: 128, 3: 128, 4: 256, 5: 256, 6: 384, 7: 384, 8: 512}
POOLED = (4, 8)  # fire modules followed by a max-pool


def squeezenet(shape: Shape, classes: int, groups: Groups = 2) -> Chain:
    """SqueezeNet: stem, fire2 to fire8, and a head of fire9, 1x1 classifier and pool."""
    channels, _, _ = image_shape("squeezenet", shape, min_side=8)
    norm = make_norm("group", groups)
    stem = nn.Sequential(*conv_norm(channels, 96, 3, norm, padding=1), relu(), nn.MaxPool2d(2))
    blocks: dict[str, nn.Module] = {"stem": stem}
    inputs = 96
    for number, width in FIRES.items():
        fire = Fire(inputs, width, norm)
        block: nn.Module = Residual(fire) if inputs == width else fire
        if number in POOLED:
            block = named(fire=block, pool=nn.MaxPool2d(2))
        blocks[f"fire{number}"] = block
        inputs = width
    return Chain(blocks | {"head": _head(inputs, classes, norm)})


def _head(inputs: int, classes: int, norm: Norm) -> nn.Sequential:
    fire = Fire(inputs, 512, norm)
    return named(
        fire9=fire,
        fc=nn.Conv2d(512, classes, 1),
        pool=nn.AdaptiveAvgPool2d(1),
        flatten=nn.Flatten(),
    )


class Fire(nn.Module):
    """1x1 squeeze to an eighth of the output channels, then 1x1 and 3x3 expansions side by side."""

    def __init__(self, inputs: int, outputs: int, norm: Norm) -> None:
        super().__init__()
        inner = outputs // 8
        self.squeeze = nn.Sequential(*conv_norm(inputs, inner, 1, norm), relu())
        self.expand1 = nn.Sequential(*conv_norm(inner, outputs // 2, 1, norm), relu())
        self.expand3 = nn.Sequential(*conv_norm(inner, outputs // 2, 3, norm, padding=1), relu())

    def forward(self, x: Tensor) -> Tensor:
        squeezed = self.squeeze(x)
        return torch.cat([self.expand1(squeezed), self.expand3(squeezed)], dim=1)
