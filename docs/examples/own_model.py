"""A model of your own: a function of the shape of a sample and the number of classes that returns a torch module.

    fedloom run --model docs/examples/own_model.py:small --rounds 2
    fedloom run --model 'docs/examples/own_model.py:small(width=16)' --rounds 2

Any module will do as it is, as one block. Methods that look into a model want several blocks: `of` cuts it behind the modules
you name, and with an example batch proves that the chain computes what the module computes, bit for bit.
"""

from typing import Annotated

import torch
from torch import Tensor, nn

from fedloom.core.chain_from_module import cut
from fedloom.core.spec import Param


class Small(nn.Module):
    """Two convolutions, written as anybody would."""

    def __init__(self, channels: int, classes: int, width: int) -> None:
        super().__init__()
        self.near = nn.Sequential(
            nn.Conv2d(channels, width, 3, padding=1),
            nn.GroupNorm(2, width),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.far = nn.Sequential(
            nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4)
        )
        self.classify = nn.Linear(2 * width * 16, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(self.far(self.near(x)).flatten(1))


def small(
    shape: tuple[int, ...],
    classes: int,
    width: Annotated[int, Param("channels of the first layer, an even number", low=2)] = 8,
) -> nn.Module:
    return cut(
        Small(shape[0], classes, width), cuts=["near", "far"], example=torch.zeros(2, *shape)
    )
