"""Blending a sample with another one, labels alike: what mixup and its kin share."""

from __future__ import annotations

import torch
from torch import Tensor

Pair = tuple[Tensor, Tensor]  # samples, and labels as rows of probabilities


def pair(x: Tensor, y: Tensor, classes: int) -> Pair:
    """The samples with their class numbers as rows of probabilities."""
    return x, x.new_zeros(len(y), classes).scatter_(
        1, y[:, None], 1.0
    )  # F.one_hot takes longer, and then a cast


def beside(own: Pair, other: Pair, share: float) -> Pair:
    """The share of one's own beside the rest of the other's; the other may be one sample for the whole batch."""
    return torch.lerp(other[0], own[0], share), torch.lerp(other[1], own[1], share)


def mixed(x: Tensor, y: Tensor, other: Tensor, share: float, classes: int) -> Pair:
    """The share of each sample beside the rest of the one that `other` points to."""
    own, other = pair(x, y, classes), other.to(x.device)
    return beside(own, (own[0][other], own[1][other]), share)
