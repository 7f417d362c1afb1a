"""Interpolating samples and their labels, shared by mixup and its variants."""

from __future__ import annotations

import torch
from torch import Tensor

from fedloom.core.transfer import to_device

SoftLabelled = tuple[Tensor, Tensor]  # samples, and labels as rows of probabilities


def with_one_hot_labels(x: Tensor, y: Tensor, classes: int) -> SoftLabelled:
    """The samples with one-hot labels of the samples' dtype."""
    # F.one_hot is slower and needs a cast.
    return x, x.new_zeros(len(y), classes).scatter_(1, y[:, None], 1.0)


def interpolated(own: SoftLabelled, other: SoftLabelled, share: float) -> SoftLabelled:
    """share * own + (1 - share) * other, samples and labels.

    `other` may be a single sample with its label, used for the whole batch.
    """
    return torch.lerp(other[0], own[0], share), torch.lerp(other[1], own[1], share)


def mixed_within_batch(
    x: Tensor, y: Tensor, partners: Tensor, share: float, classes: int
) -> SoftLabelled:
    """Each sample, with weight `share`, mixed with the sample of the batch at `partners[i]`."""
    own, partners = with_one_hot_labels(x, y, classes), to_device(partners, x.device)
    return interpolated(own, (own[0][partners], own[1][partners]), share)
