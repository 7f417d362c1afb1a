"""Estimate a block's Lipschitz constant on each sample, from the features before and after it."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

# Up to this many rows, forming M M^T once is faster than two products with M per iteration.
MAX_SQUARED_ROWS = 128
_POOLS: dict[int, Any] = {
    1: F.adaptive_avg_pool1d,
    2: F.adaptive_avg_pool2d,
    3: F.adaptive_avg_pool3d,
}


def transmitting_matrix(before: Tensor, after: Tensor) -> Tensor:
    """before after^T / positions per sample, of features [batch, channels, positions...].

    The features before the block are average-pooled to the positions of those after it. Features
    without positions, [batch, channels], count as having one.
    """
    before, after = (t if t.dim() > 2 else t.unsqueeze(2) for t in (before, after))
    if before.dim() != after.dim():
        before, after = before.flatten(2), after.flatten(2)
    if before.shape[2:] != after.shape[2:]:
        before = _POOLS[after.dim() - 2](before, list(after.shape[2:]))
    before, after = before.flatten(2), after.flatten(2)
    return torch.bmm(before, after.mT) / after.shape[2]


def spectral_norm(matrices: Tensor, iterations: int = 10) -> Tensor:
    """The largest singular value of each matrix M, differentiable.

    Computed by power iteration on M M^T, started from the vector of ones. A zero matrix gets a
    tiny positive value and no gradient.
    """
    least, rows = torch.finfo(matrices.dtype).tiny, matrices.shape[1]
    square = matrices @ matrices.mT if rows <= MAX_SQUARED_ROWS else None
    vector = norm = matrices.new_ones(len(matrices), rows, 1)
    for _ in range(iterations):
        image = matrices @ (matrices.mT @ vector) if square is None else square @ vector
        norm = torch.linalg.vector_norm(image, dim=1, keepdim=True).clamp_min(least)
        vector = image / norm
    return norm.sqrt().flatten()
