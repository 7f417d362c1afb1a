"""A subset of a data set's users, as LEAF's own sampling makes one.

Kept are users with enough samples, evenly spaced in the order of their names; nothing is drawn. A
user's size counts both splits. The test split keeps the samples of the same users; if it holds
entirely different users, it stays whole.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from fedloom.core.spec import Param
from fedloom.data.sources.build import RawSplit
from fedloom.data.sources.errors import data_error

UserCount = Annotated[
    int, Param("number of users to keep, evenly spaced among all; 0 keeps all", low=0)
]
MinSamples = Annotated[int, Param("users with fewer samples are left out; 1 keeps everyone", low=1)]


def keep_users(
    train: RawSplit, test: RawSplit | None, users: int, min_samples: int
) -> tuple[RawSplit, RawSplit | None]:
    """Both splits reduced to the chosen users."""
    if not users and min_samples == 1:
        return train, test
    names = _large_users(train, test, min_samples)
    if users > len(names) or not len(names):
        found = f"{len(names)} users with at least {min_samples} samples"
        expected = f"{users or 'one'} or more"
        raise data_error(train.where, found, expected, "lower the option users or min_samples")
    if users:
        names = names[np.arange(users) * len(names) // users]
    return train.take(np.isin(_users(train), names)), _reduced_test(test, names)


def _users(split: RawSplit) -> np.ndarray:
    assert split.users is not None  # readers with these options always set them
    return split.users


def _large_users(train: RawSplit, test: RawSplit | None, min_samples: int) -> np.ndarray:
    """The names of training users with enough samples, sorted."""
    everyone = [_users(split) for split in (train, test) if split is not None]
    names, sizes = np.unique(np.concatenate(everyone), return_counts=True)
    return names[(sizes >= min_samples) & np.isin(names, _users(train))]


def _reduced_test(test: RawSplit | None, names: np.ndarray) -> RawSplit | None:
    if test is None:
        return None
    is_kept = np.isin(_users(test), names)
    return test.take(is_kept) if is_kept.any() else test


def description(users: int, min_samples: int) -> dict[str, str]:
    """Which users were kept, for Dataset.about; empty if all were.

    >>> description(60, 250), description(0, 1)
    ({'kept': '60 of the users with at least 250 samples, evenly spaced'}, {})
    """
    if not users and min_samples == 1:
        return {}
    large = f"users with at least {min_samples} samples"
    return {"kept": f"{users} of the {large}, evenly spaced" if users else large}
