"""A map-style torch Dataset of (sample, label), stored under a name and used like any data set.

    python docs/examples/own_data.py
    fedloom run --data rings --model 'mlp(width=32)' --clients 10 --rounds 20 --lr 0.2

For experiments in Python it need not be stored: fedloom.Experiment(data=Rings(2000), ...).
"""

import math

import torch
from torch import Tensor
from torch.utils.data import Dataset

from fedloom.data import store
from fedloom.data.sources import from_torch


class Rings(Dataset):
    """Points on two concentric rings; the label says which."""

    def __init__(self, count: int) -> None:
        draws = torch.Generator().manual_seed(0)
        self.labels = torch.arange(count) % 2
        angles = 2 * math.pi * torch.rand(count, generator=draws)
        radii = 1 + self.labels + 0.1 * torch.randn(count, generator=draws)
        self.points = torch.stack([radii * angles.cos(), radii * angles.sin()], dim=1)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.points[index], int(self.labels[index])


if __name__ == "__main__":
    rings = from_torch(Rings(2000), name="rings", classes=("inner", "outer"))
    store.save(rings, replace=True)
