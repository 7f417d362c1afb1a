"""The Lipschitz constant of a block, estimated on each sample by the features before and behind it."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

FEW = 128  # rows of a matrix; up to here its square is made sooner than it is read twice in every iteration
_POOLS: dict[int, Any] = {
    1: F.adaptive_avg_pool1d,
    2: F.adaptive_avg_pool2d,
    3: F.adaptive_avg_pool3d,
}


def transmitting(before: Tensor, behind: Tensor) -> Tensor:
    """before behind^T / positions, of features [batch, channels, positions...]; those before are pooled to the positions behind.

    Features without positions, [batch, channels], have one.
    """
    before, behind = (t if t.dim() > 2 else t.unsqueeze(2) for t in (before, behind))
    if before.dim() != behind.dim():
        before, behind = before.flatten(2), behind.flatten(2)
    if before.shape[2:] != behind.shape[2:]:
        before = _POOLS[behind.dim() - 2](before, list(behind.shape[2:]))
    before, behind = before.flatten(2), behind.flatten(2)
    return torch.bmm(before, behind.mT) / behind.shape[2]


def top_singular(matrices: Tensor, iterations: int = 10) -> Tensor:
    """The largest singular value of each matrix M, by power iteration on M M^T from all ones; gradients flow through it.

    A matrix of zeros has the value of a tiny number, and no gradient.
    """
    least, rows = torch.finfo(matrices.dtype).tiny, matrices.shape[1]
    square = matrices @ matrices.mT if rows <= FEW else None
    vector = norm = matrices.new_ones(len(matrices), rows, 1)
    for _ in range(iterations):
        image = matrices @ (matrices.mT @ vector) if square is None else square @ vector
        norm = torch.linalg.vector_norm(image, dim=1, keepdim=True).clamp_min(least)
        vector = image / norm
    return norm.sqrt().flatten()
