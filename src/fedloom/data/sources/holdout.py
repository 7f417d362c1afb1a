"""A test split for data that come without one: the same samples every time, no draw involved.

Within each user (within each class where there are no users) the samples are put in order of class and every k-th one is
held out, k = 1 / share, starting one place later for each next user, so that neither a user nor a class is left out or
favoured. The next character of a text is held out differently: the last share of each user's samples, because windows of
one text overlap and a later window may be trained on what an earlier one is asked.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from fedloom.core.spec import Param
from fedloom.data.sources.build import Part
from fedloom.data.sources.errors import bad

TestShare = Annotated[
    float,
    Param("share of the samples held out where the files bring no test split", above=0, below=1),
]


def held_out(
    y: np.ndarray, users: np.ndarray | None, share: float, where: object, tail: bool = False
) -> np.ndarray:
    """The mask of the samples held out, at least one.

    >>> held_out(np.array([0, 1, 0, 1, 0, 1, 0, 1]), None, 0.25, "").nonzero()[0].tolist()
    [5, 6]
    """
    groups = np.unique(y if users is None else users, return_inverse=True)[1]
    order = np.argsort(groups, kind="stable") if tail else np.lexsort((y, groups))
    sizes = np.bincount(groups)
    group = groups[order]
    rank = np.arange(len(y)) - (np.cumsum(sizes) - sizes)[group]
    held = (
        rank >= sizes[group] - _whole(sizes[group], share) if tail else _every(rank + group, share)
    )
    # A group of which nothing would be left to train on keeps its first sample.
    gone = np.bincount(group, weights=held) == sizes
    mask = np.empty(len(y), dtype=bool)
    mask[order] = held & ~(gone[group] & (rank == 0))
    if not mask.any():
        found = f"{len(y)} samples, of which a share of {share:g} leaves no test sample"
        raise bad(where, found, "enough for both splits", "raise test_share or bring a test split")
    return mask


def _whole(count: np.ndarray, share: float) -> np.ndarray:
    return np.floor(count * share + 1e-9)


def _every(place: np.ndarray, share: float) -> np.ndarray:
    return _whole(place + 1, share) > _whole(place, share)


def split(samples: Part, share: float, tail: bool = False) -> tuple[Part, Part]:
    """Training and test split of samples that come as one."""
    test = held_out(samples.y, samples.users, share, samples.where, tail)
    return samples.take(~test), samples.take(test)


def said(share: float, users: bool, tail: bool = False) -> str:
    """How the test split was made, for Dataset.about."""
    if tail:
        return f"made here: the last {share:g} of each user's samples"
    within = "user, in order of class" if users else "class"
    return f"made here: a share of {share:g}, every k-th sample of each {within}"
