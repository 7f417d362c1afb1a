"""Client drift: how far the updates of a round differ, and how far client features have moved away
from the server's.

Features are compared by linear CKA (Kornblith et al., ICML 2019), computed from the Gram matrices K
and L of the two feature matrices after centring their columns:

    CKA = <K, L> / (|K| |L|)        1: equal up to rotation and scale; 0: nothing in common
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.diagnostics.curvature import Batch


@dataclass(frozen=True)
class Drift:
    """An update's norm, its distance from the mean update, and its cosine to the mean update.

    The cosine is NaN if the update or the mean is zero.
    """

    length: float
    distance: float
    cosine: float


def update_drifts(updates: Sequence[Tensor]) -> list[Drift]:
    """Compare each update with the unweighted mean of all."""
    rows = torch.stack([u.cpu().double() for u in updates])
    mean = rows.mean(0)
    return [
        Drift(float(u.norm()), float((u - mean).norm()), float(u @ mean / (u.norm() * mean.norm())))
        for u in rows
    ]


def block_grams(chain: Chain, batches: Sequence[Batch]) -> dict[str, Tensor]:
    """For every block, the Gram matrix (samples by samples) of its centred output features."""
    chain.eval()
    with torch.inference_mode():
        taps_per_batch = [chain.taps(x) for x, _ in batches]
        grams = {}
        for name in chain.names:
            # pop frees a block's features as soon as its Gram matrix is made
            features = torch.cat([taps.pop(name).flatten(1) for taps in taps_per_batch])
            grams[name] = centred_gram(features)
        return grams


def centred_gram(features: Tensor) -> Tensor:
    """The Gram matrix of features (one row per sample) after centring their columns."""
    centred = features - features.mean(0)
    return (centred @ centred.T).cpu().double()


def linear_cka(a: Tensor, b: Tensor) -> float:
    """Linear CKA from two centred Gram matrices; NaN if the features of one are constant."""
    return float((a * b).sum() / (a.norm() * b.norm()))


def cka_per_block(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> dict[str, float]:
    """Linear CKA of two models, block by block, from their `block_grams`."""
    return {name: linear_cka(a[name], b[name]) for name in a}
