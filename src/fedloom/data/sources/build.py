"""From the arrays a reader has loaded to a checked data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from fedloom.core.spec import Param
from fedloom.data.dataset import Dataset, Kind, Split
from fedloom.data.sources.constants import Constants, constants_for
from fedloom.data.sources.errors import data_error
from fedloom.data.sources.labels import class_numbers, numbered_classes
from fedloom.data.sources.targets import (
    check_positions,
    check_same_form,
    output_count,
    output_names,
    targets_of,
)

Name = Annotated[
    str | None, Param("name of the data set; by default that of the set, the folder or the file")
]


@dataclass(frozen=True)
class RawSplit:
    """A split as NumPy arrays: samples and targets in their final type, user names per sample.

    `where` names the source in error messages.
    """

    x: np.ndarray
    y: np.ndarray
    where: object
    users: np.ndarray | None = None

    def take(self, rows: np.ndarray) -> RawSplit:
        """The samples at these rows (indices or a mask)."""
        users = None if self.users is None else self.users[rows]
        return RawSplit(self.x[rows], self.y[rows], self.where, users)


def raw_split(
    x: np.ndarray,
    y: object,
    where: object,
    users: object = None,
    task: str = "classification",
) -> RawSplit:
    """A split with one target (and one user) per sample; class labels are whole numbers from 0."""
    if len(x) == 0:
        raise data_error(where, "no samples", "at least one", "check that the file is complete")
    y = np.asarray(y)
    targets = class_numbers(y, where) if task == "classification" else targets_of(task, y, where)
    user_names = None if users is None else np.asarray(users).astype(str)
    for column, values in (("labels", targets), ("users", user_names)):
        if values is not None and len(values) != len(x):
            found = f"{len(x)} samples and {column} of shape {values.shape}"
            raise data_error(where, found, f"{column} of shape ({len(x)},)", "make them match")
    if task == "next-token":
        check_positions(x, targets, where)
    return RawSplit(x, targets, where, user_names)


def default_name(path: Path) -> str:
    """The name of a data set that was given none: the folder's, or the file's without suffix."""
    return path.name if path.is_dir() else path.stem


def build_dataset(
    name: str,
    kind: Kind,
    train: RawSplit,
    test: RawSplit,
    about: Mapping[str, str],
    classes: Sequence[str] = (),
    constants: Constants | None = None,
    task: str = "classification",
) -> Dataset:
    """The data set of two splits; without `classes` the distinct labels are the classes.

    `constants` are the mean and std of images, signals and volumes; by default those of a known
    data set of this name, else measured on the training split.
    """
    if train.x.shape[1:] != test.x.shape[1:]:
        found = f"samples of shape {test.x.shape[1:]}"
        expected = f"{train.x.shape[1:]} as in {train.where}"
        raise data_error(test.where, found, expected, "use the same shape in both splits")
    names = tuple(classes)
    if task != "classification":
        check_same_form(train.y, test.y, test.where)
        count = max(output_count(task, split.x, split.y) for split in (train, test))
        names = output_names(task, count, names, train.where)
    elif not names:
        names, train, test = named_by_labels(train, test)
    for split in (train, test):
        _check_values(split, names, task)
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    if kind in ("image", "signal", "volume"):
        mean, std = constants or constants_for(name, train.x)
    users, (train_users, test_users) = _numbered_users(train.users, test.users)
    return Dataset(
        name,
        kind,
        Split(torch.from_numpy(train.x), torch.from_numpy(train.y), train_users),
        Split(torch.from_numpy(test.x), torch.from_numpy(test.y), test_users),
        names,
        mean,
        std,
        users,
        dict(about),
        task,
    )


def named_by_labels(train: RawSplit, test: RawSplit) -> tuple[tuple[str, ...], RawSplit, RawSplit]:
    """The distinct labels as class names, and the splits with labels numbered 0, 1, ... by them."""
    labels = numbered_classes(train.y, test.y, train.where)
    train, test = (replace(s, y=np.searchsorted(labels, s.y)) for s in (train, test))
    return tuple(str(label) for label in labels.tolist()), train, test


def _check_values(split: RawSplit, classes: Sequence[str], task: str) -> None:
    if split.x.dtype.kind == "f" and not np.isfinite(split.x).all():
        remedy = "scale the columns down or leave them out"
        raise data_error(split.where, "features beyond float32", "finite features", remedy)
    if task == "classification" and (highest := int(split.y.max())) >= len(classes):
        expected = f"0 to {len(classes) - 1} ({len(classes)} classes)"
        remedy = "check the file, or name all classes"
        raise data_error(split.where, f"label {highest}", expected, remedy)


def _numbered_users(*splits: np.ndarray | None) -> tuple[tuple[str, ...], list[Tensor | None]]:
    """Names and numbers of the users; those of the training split come first, so are 0 to n-1."""
    number: dict[str, int] = {}
    for users in splits:
        if users is not None:
            for name in sorted(np.unique(users).tolist(), key=natural_order):
                number.setdefault(name, len(number))
    return tuple(number), [None if users is None else _numbers(users, number) for users in splits]


def natural_order(name: str) -> tuple[bool, int, str]:
    """Sort key: numbers by value, before words."""
    return (not name.isdecimal(), int(name) if name.isdecimal() else 0, name)


def _numbers(users: np.ndarray, number: Mapping[str, int]) -> Tensor:
    names, inverse = np.unique(users, return_inverse=True)
    numbers = np.array([number[name] for name in names.tolist()], dtype=np.int64)
    return torch.from_numpy(numbers[inverse])
