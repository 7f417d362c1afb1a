"""The area under a ROC curve, for metrics of classes and of labels."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def area_under_roc(scores: Tensor, positive: Tensor) -> float:
    """The probability that a positive sample has a higher score than a negative one.

    A tie counts half. NaN if all samples are positive or all negative, or if a score is NaN.
    From the ranks r of the scores, with p positive and n negative samples (Mann and Whitney):

        (sum of r over the positive samples - p (p + 1) / 2) / (p n)
    """
    positives = int(positive.sum())
    pairs = positives * (len(positive) - positives)
    if not pairs or bool(scores.isnan().any()):
        return math.nan
    above = float(_ranks(scores)[positive].sum()) - positives * (positives + 1) / 2
    return above / pairs


def _ranks(scores: Tensor) -> Tensor:
    """Ranks from 1 in float64; equal scores share the mean of their ranks."""
    _, place, counts = torch.unique(scores, return_inverse=True, return_counts=True)
    ranks: Tensor = counts.cumsum(0).double() - (counts.double() - 1) / 2
    return ranks[place]
