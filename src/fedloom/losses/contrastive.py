"""MOON's model-contrastive loss."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def contrastive_loss(z: Tensor, positive: Tensor, negative: Tensor, temperature: float) -> Tensor:
    """-log softmax([cos(z, positive), cos(z, negative)] / temperature)[0], averaged over the batch.

    It pulls the features z towards the positive ones and pushes them away from the negative ones.
    """
    # Both similarities in one call: if positive equals negative, the two gradients then cancel
    # exactly before any other gradient is added.
    both = torch.stack((positive, negative), dim=-2)
    similarities = F.cosine_similarity(z.unsqueeze(-2), both, dim=-1)
    return -F.log_softmax(similarities / temperature, dim=-1)[..., 0].mean()
