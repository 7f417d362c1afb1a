"""Clients whose samples are plain tensors."""

from dataclasses import dataclass

import torch
from torch import Tensor

from support.models import CLASSES, FEATURES

SIZES = (5, 9, 12, 7, 16, 8, 21, 10)  # unequal; in batches of 4, three of them leave a tail of one


@dataclass(frozen=True)
class TensorClient:
    """Samples in memory; `size` is the number it claims to hold, where that differs from the rows."""

    x: Tensor
    y: Tensor
    size: int | None = None

    def __len__(self) -> int:
        return len(self.y) if self.size is None else self.size

    @property
    def labels(self) -> Tensor:
        return self.y

    def batch(
        self, positions: Tensor, generator: torch.Generator | None = None, train: bool = True
    ) -> tuple[Tensor, Tensor]:
        return self.x[positions], self.y[positions]


def tiny_clients(sizes: tuple[int, ...] = SIZES) -> list[TensorClient]:
    """Gaussian clouds, each client's centred elsewhere."""
    draws = torch.Generator().manual_seed(20)

    def one(size: int) -> TensorClient:
        centre = torch.randn(FEATURES, generator=draws, dtype=torch.float64)
        x = centre + torch.randn(size, FEATURES, generator=draws, dtype=torch.float64)
        return TensorClient(x, torch.randint(CLASSES, (size,), generator=draws))

    return [one(size) for size in sizes]
