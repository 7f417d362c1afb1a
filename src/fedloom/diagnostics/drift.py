"""Client drift: how far the updates of a round lie apart, and how far the clients' features have moved from the server's.

Linear CKA of two feature matrices with centred columns, Kornblith et al., ICML 2019, from their Gram matrices K and L:

    CKA = <K, L> / (|K| |L|)        1: the same up to rotation and scale; 0: nothing in common
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
    """An update's length, its distance from the mean update and its cosine to it (not a number if one of them is zero)."""

    length: float
    distance: float
    cosine: float


def drifts(updates: Sequence[Tensor]) -> list[Drift]:
    """Each update against the plain mean of all."""
    rows = torch.stack([u.cpu().double() for u in updates])
    mean = rows.mean(0)
    return [
        Drift(float(u.norm()), float((u - mean).norm()), float(u @ mean / (u.norm() * mean.norm())))
        for u in rows
    ]


def grams(chain: Chain, batches: Sequence[Batch]) -> dict[str, Tensor]:
    """For every block the Gram matrix of its centred features, samples by samples."""
    chain.eval()
    with torch.inference_mode():
        pieces = [chain.taps(x) for x, _ in batches]
        return {
            name: gram(torch.cat([piece.pop(name).flatten(1) for piece in pieces]))
            for name in chain.names
        }


def gram(features: Tensor) -> Tensor:
    """The Gram matrix of features, a row a sample, after their columns are centred."""
    centred = features - features.mean(0)
    return (centred @ centred.T).cpu().double()


def cka(a: Tensor, b: Tensor) -> float:
    """Linear CKA from two Gram matrices; not a number where features are constant."""
    return float((a * b).sum() / (a.norm() * b.norm()))


def by_block(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> dict[str, float]:
    """CKA of two models, block by block."""
    return {name: cka(a[name], b[name]) for name in a}
