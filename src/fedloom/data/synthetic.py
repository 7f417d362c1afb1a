"""A crowd: a made-up federation of as many users as one likes, for measuring how cost grows. Named crowd-N, N users.

Every user has 12 samples of 20 numbers and of 2 of the 10 classes; a class is a point in space, a user a small shift of it. The
test split has 1,000 samples of users that nobody trains on. Drawn from a fixed key: the same N is the same data everywhere.
"""

from __future__ import annotations

import re

import torch
from torch import Tensor

from fedloom.core.key import Key
from fedloom.data.dataset import Dataset, Split

SAMPLES, FEATURES, CLASSES, HELD_OUT = 12, 20, 10, 1000
NAME = re.compile(r"crowd-([1-9]\d{0,6})")


def size_of(name: str) -> int | None:
    """How many users a name asks for, or None if it is not a crowd's.

    >>> size_of("crowd-100000"), size_of("crowded-5")
    (100000, None)
    """
    match = NAME.fullmatch(name)
    return int(match[1]) if match else None


def load(users: int) -> Dataset:
    """A crowd of so many users."""
    key = Key.root(0).fold("crowd")
    centres = torch.randn(CLASSES, FEATURES, generator=key.fold("centres").generator())
    whose = torch.arange(users).repeat_interleave(SAMPLES)
    train, test = (
        _drawn(key.fold("train"), centres, users, SAMPLES),
        _drawn(key.fold("test"), centres, HELD_OUT, 1),
    )
    names = tuple(f"user-{n}" for n in range(users))
    about = {"source": "made up by fedloom", "licence": "none needed"}
    classes = tuple(f"class {c}" for c in range(CLASSES))
    return Dataset(
        f"crowd-{users}",
        "table",
        Split(*train, whose),
        Split(*test),
        classes,
        users=names,
        about=about,
    )


def _drawn(key: Key, centres: Tensor, users: int, samples: int) -> tuple[Tensor, Tensor]:
    g = key.generator()
    shift = 0.5 * torch.randn(users, 1, FEATURES, generator=g)
    two = torch.randint(0, CLASSES, (users, 2), generator=g)
    y = two.gather(1, torch.randint(0, 2, (users, samples), generator=g))
    x = (
        centres[y].add_(shift).add_(torch.randn(users, samples, FEATURES, generator=g))
    )  # in place: a crowd is large
    return x.view(-1, FEATURES), y.view(-1)
