"""The three workloads in plain PyTorch, for environments without fedloom.

Sizes, layers and noise are the same as ours.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Work(NamedTuple):
    clients: int
    samples: int
    per_round: int
    batch: int
    epochs: int
    shape: tuple[int, int, int]
    lr: float = 0.01


WORK = {
    "w1": Work(100, 100, 10, 10, 1, (1, 28, 28)),
    "w2": Work(16, 128, 16, 32, 2, (3, 32, 32)),
    "w3": Work(10_000, 20, 100, 20, 1, (1, 28, 28)),
}


def data(work: Work) -> tuple[Tensor, Tensor]:
    """Normalised noise (clients, samples, *shape) and labels (clients, samples)."""
    g = torch.Generator().manual_seed(0)
    size = (work.clients, work.samples, *work.shape)
    pixels = torch.randint(0, 256, size, dtype=torch.uint8, generator=g)
    labels = torch.randint(0, 10, size[:2], generator=g)
    return pixels.float().div_(255).sub_(0.5).div_(0.25), labels


def model(name: str) -> nn.Module:
    """The layers of lenet5, resnet8(norm=group) and mlp(width=64, layers=1)."""
    return {"w1": lenet5, "w2": resnet8, "w3": mlp}[name]()


@cache
def cached(name: str) -> tuple[nn.Module, Tensor, Tensor]:
    """A model and the data, created once per process, for workers that get one client at a time."""
    return model(name), *data(WORK[name])


def train(net: nn.Module, work: Work, x: Tensor, y: Tensor) -> None:
    """Train a client, for libraries that leave the training loop to the user."""
    optimizer = torch.optim.SGD(net.parameters(), lr=work.lr)
    for _ in range(work.epochs):
        for rows in torch.randperm(len(y)).split(work.batch):
            optimizer.zero_grad()
            F.cross_entropy(net(x[rows]), y[rows]).backward()
            optimizer.step()


def mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(inplace=True), nn.Linear(64, 10))


def lenet5() -> nn.Module:
    def stage(inputs: int, outputs: int, padding: int) -> list[nn.Module]:
        return [
            nn.Conv2d(inputs, outputs, 5, padding=padding),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
        ]

    dense = [
        nn.Linear(400, 120),
        nn.ReLU(inplace=True),
        nn.Linear(120, 84),
        nn.ReLU(inplace=True),
        nn.Linear(84, 10),
    ]
    return nn.Sequential(*stage(1, 6, 2), *stage(6, 16, 0), nn.Flatten(), *dense)


def resnet8() -> nn.Module:
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)]
    return nn.Sequential(
        conv(3, 16, 3), nn.ReLU(inplace=True), Block(16, 16), Block(16, 32), Block(32, 64), *head
    )


def conv(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False), nn.GroupNorm(2, outputs)
    )


class Block(nn.Module):
    """Two convolutions and a shortcut; where the width grows, the image shrinks."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        stride = outputs // inputs
        self.body = nn.Sequential(
            conv(inputs, outputs, 3, stride), nn.ReLU(inplace=True), conv(outputs, outputs, 3)
        )
        self.shortcut = nn.Identity() if stride == 1 else conv(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu_(self.body(x) + self.shortcut(x))
