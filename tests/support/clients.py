"""Clients whose samples are tensors in memory."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedloom.core.checksum import samples_checksum
from support.models import CLASSES, FEATURES

SIZES = (5, 9, 12, 7, 16, 8, 21, 10)  # unequal; three have a last batch of 1 in batches of 4


@dataclass(frozen=True)
class TensorClient:
    """Samples in memory; `size`: the sample count it claims, if it differs from the real one."""

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

    def checksum(self) -> int:
        return samples_checksum(self)


def tiny_clients(sizes: tuple[int, ...] = SIZES) -> list[TensorClient]:
    """Gaussian clusters with a different centre per client."""
    draws = torch.Generator().manual_seed(20)

    def one(size: int) -> TensorClient:
        centre = torch.randn(FEATURES, generator=draws, dtype=torch.float64)
        x = centre + torch.randn(size, FEATURES, generator=draws, dtype=torch.float64)
        return TensorClient(x, torch.randint(CLASSES, (size,), generator=draws))

    return [one(size) for size in sizes]
