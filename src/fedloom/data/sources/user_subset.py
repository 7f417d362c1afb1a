"""Some of the users of a data set, as LEAF's own sampling keeps some: those with enough samples, evenly spaced, nothing drawn.

A user's size is that of both splits together. The test split keeps the samples of the same users; where it is about other users
altogether, it stays whole.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from fedloom.core.spec import Param
from fedloom.data.sources.build import Part
from fedloom.data.sources.errors import bad

Users = Annotated[
    int, Param("only so many users, evenly spaced among those there are; 0 keeps all", low=0)
]
Least = Annotated[int, Param("users with fewer samples are left out; 1 keeps everyone", low=1)]


def of(train: Part, test: Part | None, users: int, least: int) -> tuple[Part, Part | None]:
    """Both splits cut down to the users asked for."""
    if not users and least == 1:
        return train, test
    names = _spaced(_large(train, test, least), users, least, train)
    return train.take(np.isin(_whose(train), names)), _cut(test, names)


def _whose(part: Part) -> np.ndarray:
    """The user of each sample: readers that offer these options know them all."""
    assert part.users is not None
    return part.users


def _large(train: Part, test: Part | None, least: int) -> np.ndarray:
    """The users who train and have enough samples, in the order of their names."""
    told = [_whose(part) for part in (train, test) if part is not None]
    names, sizes = np.unique(np.concatenate(told), return_counts=True)
    return names[(sizes >= least) & np.isin(names, _whose(train))]


def _spaced(names: np.ndarray, users: int, least: int, train: Part) -> np.ndarray:
    if users > len(names) or not len(names):
        found, expected = (
            f"{len(names)} users with at least {least} samples",
            f"{users or 'one'} or more",
        )
        raise bad(train.where, found, expected, "lower the option users or least")
    return names[np.arange(users) * len(names) // users] if users else names


def _cut(test: Part | None, names: np.ndarray) -> Part | None:
    if test is None or not (memories := np.isin(_whose(test), names)).any():
        return test
    return test.take(memories)


def said(users: int, least: int) -> dict[str, str]:
    """What was kept, for Dataset.about; nothing where that is everyone.

    >>> said(60, 250), said(0, 1)
    ({'kept': '60 of the users with at least 250 samples, evenly spaced'}, {})
    """
    if not users and least == 1:
        return {}
    large = f"users with at least {least} samples"
    return {"kept": f"{users} of the {large}, evenly spaced" if users else large}
