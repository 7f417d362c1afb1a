"""A test split for data that come without one: always the same samples, nothing is drawn.

Within each user (within each class if there are no users) the samples are ordered by class and
every k-th one is held out, k = 1 / share. Each next user starts one place later, so that no user
and no class is left out or favoured. Targets that are no classes are ordered by value. For
next-character text the last share of each user's samples is held out instead: windows of one text
overlap, and training on a later window would reveal the answer to an earlier one.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from fedloom.core.spec import Param
from fedloom.data.sources.build import RawSplit
from fedloom.data.sources.errors import data_error

TestShare = Annotated[
    float,
    Param("share of the samples held out if the files have no test split", above=0, below=1),
]


def held_out_mask(
    y: np.ndarray, users: np.ndarray | None, share: float, where: object, tail: bool = False
) -> np.ndarray:
    """The mask of the held-out samples, at least one; tail takes the last of each group.

    >>> held_out_mask(np.array([0, 1, 0, 1, 0, 1, 0, 1]), None, 0.25, "").nonzero()[0].tolist()
    [5, 6]
    """
    classes, rank_of_target = _classes_and_ranks(y)
    groups = np.unique(classes if users is None else users, return_inverse=True)[1]
    order = np.argsort(groups, kind="stable") if tail else np.lexsort((rank_of_target, groups))
    sizes = np.bincount(groups)
    group = groups[order]
    rank = np.arange(len(y)) - (np.cumsum(sizes) - sizes)[group]
    if tail:
        held = rank >= sizes[group] - _whole_part(sizes[group], share)
    else:
        held = _is_kth(rank + group, share)
    # A group that would have no training sample left keeps its first one.
    is_exhausted = np.bincount(group, weights=held) == sizes
    mask = np.empty(len(y), dtype=bool)
    mask[order] = held & ~(is_exhausted[group] & (rank == 0))
    if not mask.any():
        found = f"{len(y)} samples, of which a share of {share:g} leaves no test sample"
        remedy = "raise test_share or provide a test split"
        raise data_error(where, found, "enough for both splits", remedy)
    return mask


def _classes_and_ranks(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The class of each sample, and its place in the order of all targets.

    Where targets are no classes, all samples are of one.
    """
    if y.ndim == 1 and y.dtype.kind in "iu":
        return y, y
    return np.zeros(len(y), np.int64), np.unique(y, axis=0, return_inverse=True)[1].reshape(-1)


def _whole_part(count: np.ndarray, share: float) -> np.ndarray:
    # The small constant keeps products such as 5 * 0.2 from falling just below a whole number.
    return np.floor(count * share + 1e-9)


def _is_kth(place: np.ndarray, share: float) -> np.ndarray:
    """Whether the count of held-out samples grows at this place."""
    return _whole_part(place + 1, share) > _whole_part(place, share)


def split_off_test(
    samples: RawSplit, share: float, tail: bool = False
) -> tuple[RawSplit, RawSplit]:
    """Training and test split of samples that come as one."""
    test = held_out_mask(samples.y, samples.users, share, samples.where, tail)
    return samples.take(~test), samples.take(test)


def description(
    share: float, has_users: bool, tail: bool = False, task: str = "classification"
) -> str:
    """How the test split was made, for Dataset.about."""
    if tail:
        return f"held out by fedloom: the last {share:g} of each user's samples"
    if task != "classification":
        each = " of each user" if has_users else ""
        return f"held out by fedloom: a share of {share:g}, every k-th sample{each} by target"
    group = "user, in order of class" if has_users else "class"
    return f"held out by fedloom: a share of {share:g}, every k-th sample of each {group}"
