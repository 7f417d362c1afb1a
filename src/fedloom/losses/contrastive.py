"""Features pulled to those of one teacher and pushed from those of another."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def contrast(z: Tensor, near: Tensor, far: Tensor, temperature: float) -> Tensor:
    """-log softmax([cos(z, near), cos(z, far)] / temperature) of the first, the mean over the batch."""
    # in one call, so that the gradients of two that are equal cancel before they meet another one, to the bit
    alike = F.cosine_similarity(z.unsqueeze(-2), torch.stack((near, far), dim=-2), dim=-1)
    return -F.log_softmax(alike / temperature, dim=-1)[..., 0].mean()
