"""A user-defined model: a function of the sample shape and the number of classes that returns a
torch module.

    fedloom run --model docs/examples/own_model.py:small --rounds 2
    fedloom run --model 'docs/examples/own_model.py:small(width=16)' --rounds 2

Any module works as it is, as a single block. For methods that use intermediate features it is cut
automatically; to choose the blocks, `cut` splits it after the submodules you name. Given an example
batch, it also checks that the resulting chain computes exactly what the module computes, bit for
bit.
"""

from typing import Annotated

import torch
from torch import Tensor, nn

from fedloom.core.chain_from_module import cut
from fedloom.core.spec import Param


class Small(nn.Module):
    """Two convolutions and a linear layer, in plain PyTorch."""

    def __init__(self, channels: int, classes: int, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Sequential(
            nn.Conv2d(channels, width, 3, padding=1),
            nn.GroupNorm(2, width),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.conv2 = nn.Sequential(
            nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4)
        )
        self.classifier = nn.Linear(2 * width * 16, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.conv2(self.conv1(x)).flatten(1))


def small(
    shape: tuple[int, ...],
    classes: int,
    width: Annotated[int, Param("channels of the first convolution; must be even", low=2)] = 8,
) -> nn.Module:
    """A small CNN with the blocks conv1, conv2 and head."""
    example = torch.zeros(2, *shape)
    return cut(Small(shape[0], classes, width), at=["conv1", "conv2"], example=example)
