"""Groups of a client's samples, and the mean sample and mean label of each group."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from fedloom.core.job import Data
from fedloom.core.key import Key

CHUNK = 1000  # samples normalised at a time


def split_into_groups(labels: Tensor, size: int, split: str, tail: str, key: Key) -> list[Tensor]:
    """Shuffle a client's samples and cut them into groups; returns the positions of each group.

    A kept tail group is smaller than `size`.
    """
    order = torch.randperm(len(labels), generator=key.generator())
    if split == "random":
        piles = [order]
    else:
        piles = [order[labels[order] == c] for c in sorted(set(labels.tolist()))]
    groups = [group for pile in piles for group in torch.split(pile, size or len(pile))]
    if size and tail == "drop":
        return [group for group in groups if len(group) == size]
    return groups


def smallest_group(sizes: Sequence[int], size: int, split: str, tail: str) -> int:
    """A lower bound on the size of a group, for clients with these numbers of samples.

    Exact for random groups. A group of one class may have a single sample.
    """
    if size and tail == "drop":
        return size
    if split == "same-class":
        return 1
    if not size:
        return min(sizes)
    return min(n % size or size for n in sizes)


def group_means(
    data: Data, classes: int, groups: Sequence[Tensor], clip: float | None = None
) -> tuple[Tensor, Tensor]:
    """The mean sample and the mean one-hot label of each group, with samples clipped first."""
    like, _ = _sums(data, classes, torch.zeros(1, dtype=torch.int64), None)
    x, y = like.new_empty(len(groups), *like.shape), like.new_empty(len(groups), classes)
    for n, group in enumerate(groups):
        parts = [_sums(data, classes, part, clip) for part in torch.split(group, CHUNK)]
        x[n], y[n] = (torch.stack(sums).sum(0) / len(group) for sums in zip(*parts, strict=True))
    return x, y


def _sums(data: Data, classes: int, positions: Tensor, clip: float | None) -> tuple[Tensor, Tensor]:
    x, y = data.batch(positions, train=False)
    return clipped(x, clip).sum(0), F.one_hot(y, classes).to(x.dtype).sum(0)


def clipped(x: Tensor, clip: float | None) -> Tensor:
    """The samples scaled down to L2 norm `clip` where theirs is larger; None leaves them."""
    if clip is None:
        return x
    norms: Tensor = torch.linalg.vector_norm(x.flatten(1), dim=1).clamp(min=clip)
    return x * (clip / norms).view(-1, *[1] * (x.dim() - 1))
