"""From the arrays a reader found to a checked data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from fedloom.core.spec import Param
from fedloom.data.dataset import Dataset, Kind, Split
from fedloom.data.sources.constants import Constants, constants
from fedloom.data.sources.errors import bad

Name = Annotated[
    str | None, Param("name of the data set; none is that of the set, the folder or the file")
]

SPARSE = (
    10  # labels up to this many times the number of different labels are taken as class numbers
)


@dataclass(frozen=True)
class Part:
    """One split: samples in their final type, int64 labels, names of the users, and the file to blame."""

    x: np.ndarray
    y: np.ndarray
    where: object
    users: np.ndarray | None = None

    def take(self, rows: np.ndarray) -> Part:
        """The samples of these rows."""
        return Part(
            self.x[rows], self.y[rows], self.where, None if self.users is None else self.users[rows]
        )


def part(x: np.ndarray, y: object, where: object, users: object = None) -> Part:
    """A split whose lengths agree and whose labels are class numbers."""
    if len(x) == 0:
        raise bad(where, "no samples", "at least one", "check that the file is complete")
    labels = _labels(np.asarray(y), where)
    owners = None if users is None else np.asarray(users).astype(str)
    for what, values in (("labels", labels), ("users", owners)):
        if values is not None and values.shape != (len(x),):
            raise bad(
                where,
                f"{len(x)} samples and {what} of shape {values.shape}",
                f"one of the {what} a sample",
                "make them match",
            )
    return Part(x, labels, where, owners)


def _labels(y: np.ndarray, where: object) -> np.ndarray:
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if y.dtype.kind not in "biuf":
        raise bad(
            where,
            f"labels of type {y.dtype}",
            "whole numbers from 0",
            "replace each label by the number of its class",
        )
    if not np.isfinite(y).all() or (y != np.floor(y)).any() or (len(y) and y.min() < 0):
        worst = next(
            v for v in y.ravel().tolist() if not (np.isfinite(v) and v >= 0 and v == int(v))
        )
        raise bad(
            where,
            f"label {worst}",
            "whole numbers from 0",
            "replace each label by the number of its class",
        )
    return y.astype(np.int64)


def named(path: Path) -> str:
    """What a data set is called if nobody says: the folder, or the file without its ending."""
    return path.name if path.is_dir() else path.stem


def dataset(
    name: str,
    kind: Kind,
    train: Part,
    test: Part,
    about: Mapping[str, str],
    classes: Sequence[str] = (),
    known: Constants | None = None,
) -> Dataset:
    """The data set of two splits; classes and constants of normalisation are derived where they are not given."""
    if train.x.shape[1:] != test.x.shape[1:]:
        found, expected = (
            f"samples of shape {test.x.shape[1:]}",
            f"{train.x.shape[1:]} as in {train.where}",
        )
        raise bad(test.where, found, expected, "make both splits alike")
    names = tuple(classes) or _numbers(train, test)
    for split in (train, test):
        _check(split, names)
    mean, std = (known or constants(name, train.x)) if kind == "image" else ((), ())
    users, numbered = _numbered(train.users, test.users)
    splits = [
        Split(torch.from_numpy(p.x), torch.from_numpy(p.y), u)
        for p, u in zip((train, test), numbered, strict=True)
    ]
    return Dataset(name, kind, splits[0], splits[1], names, mean, std, users, dict(about))


def _numbers(train: Part, test: Part) -> tuple[str, ...]:
    different, highest = np.unique(train.y), int(max(train.y.max(), test.y.max()))
    if highest >= SPARSE * len(different):
        found = f"labels up to {highest} of which only {len(different)} differ"
        raise bad(
            train.where,
            found,
            f"class numbers 0 to {len(different) - 1}",
            "number the classes without gaps, or name them all",
        )
    return tuple(str(c) for c in range(highest + 1))


def _check(split: Part, classes: Sequence[str]) -> None:
    if split.x.dtype.kind == "f" and not np.isfinite(split.x).all():
        raise bad(
            split.where,
            "features beyond float32",
            "finite features",
            "scale the columns down or leave them out",
        )
    if (highest := int(split.y.max())) >= len(classes):
        expected = f"0 to {len(classes) - 1} ({len(classes)} classes)"
        raise bad(
            split.where, f"label {highest}", expected, "check the file, or name all the classes"
        )


def _numbered(*groups: np.ndarray | None) -> tuple[tuple[str, ...], list[Tensor | None]]:
    """Names and numbers of the users; those of the training split come first, so they are 0 to n-1."""
    number: dict[str, int] = {}
    for users in groups:
        for name in sorted(np.unique(users).tolist(), key=_natural) if users is not None else ():
            number.setdefault(name, len(number))
    return tuple(number), [None if users is None else _lookup(users, number) for users in groups]


def _natural(name: str) -> tuple[bool, int, str]:
    """Numbers by their value, before words."""
    return (not name.isdecimal(), int(name) if name.isdecimal() else 0, name)


def _lookup(users: np.ndarray, number: Mapping[str, int]) -> Tensor:
    names, where = np.unique(users, return_inverse=True)
    return torch.from_numpy(np.array([number[n] for n in names.tolist()], dtype=np.int64)[where])
