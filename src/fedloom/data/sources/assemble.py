"""From samples with labels of any type to a data set: classes, hold-out, features, constants."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from fedloom.core.key import Key
from fedloom.data.dataset import Dataset, Kind
from fedloom.data.partition.draws import stream
from fedloom.data.sources import columns, holdout
from fedloom.data.sources.array_kinds import AXES
from fedloom.data.sources.arrays import STORED_AS
from fedloom.data.sources.build import build_dataset, raw_split
from fedloom.data.sources.constants import Constants, measured_constants
from fedloom.data.sources.errors import data_error, shortened
from fedloom.data.sources.frames import Frame
from fedloom.data.sources.pixel_arrays import CHANNELS


@dataclass(frozen=True)
class Samples:
    """One split: features as an array or as the columns of a table, labels, users.

    classes: their names, if the labels number them; else the distinct labels are the classes.
    kind: of arrays, if it is known; signals and volumes are then normalised.
    """

    x: np.ndarray | Frame
    labels: np.ndarray  # int64, bool or str; targets of other tasks as they are stored
    users: np.ndarray | None
    where: str
    classes: tuple[str, ...] = ()
    kind: str | None = None

    def take(self, rows: np.ndarray) -> Samples:
        """The samples selected by a mask."""
        users = None if self.users is None else self.users[rows]
        if isinstance(self.x, dict):
            x: np.ndarray | Frame = {name: column[rows] for name, column in self.x.items()}
        else:
            x = self.x[rows]
        return replace(self, x=x, labels=self.labels[rows], users=users)


@dataclass(frozen=True)
class Assembly:
    """How a data set is made of samples.

    standardise: whether columns of numbers are. categorical: columns that are categories although
    they hold numbers. drop: how the user leaves a column out. task: what is learned.
    """

    test_share: float = 0.2
    seed: int = 0
    standardise: bool = False
    categorical: Collection[str] = ()
    drop: str = "leave the column out with data.drop(columns='{}')"
    task: str = "classification"


def dataset_from_samples(
    name: str, train: Samples, test: Samples | None, how: Assembly, about: Mapping[str, str]
) -> Dataset:
    """The data set; without a test split a share of the samples is held out."""
    about = dict(about)
    if how.task == "classification":
        classes, train_y, test_y = _class_numbers(train, test)
    else:
        classes, train_y = train.classes, train.labels
        test_y = None if test is None else test.labels
    if test is None or test_y is None:
        has_users = train.users is not None
        about["test split"] = holdout.description(how.test_share, has_users, task=how.task)
        mask = _held_out(train_y, train.users, how, train.where)
        test, test_y = train.take(mask), train_y[mask]
        train, train_y = train.take(~mask), train_y[~mask]
    train_x, test_x, columns_are = _both_features(train, test, how)
    kind, constants = _kind_and_constants(train_x, train.kind)
    train_split = raw_split(train_x, train_y, train.where, train.users, how.task)
    test_split = raw_split(test_x, test_y, test.where, test.users, how.task)
    about |= columns_are
    return build_dataset(name, kind, train_split, test_split, about, classes, constants, how.task)


def _class_numbers(
    train: Samples, test: Samples | None
) -> tuple[tuple[str, ...], np.ndarray, np.ndarray | None]:
    """The class names, and the labels of both splits as positions in them."""
    if train.classes:
        return _named_classes(train, test)
    labels = [train.labels] if test is None else [train.labels, test.labels]
    if test is not None and (train.labels.dtype.kind == "U") != (test.labels.dtype.kind == "U"):
        found = "labels that are text in one split and numbers in the other"
        raise data_error(test.where, found, "the same in both", "convert one of them")
    values = np.unique(np.concatenate(labels))
    if len(values) < 2:
        remedy = "check the labels"
        raise data_error(train.where, f"the one class '{values[0]}'", "at least two", remedy)
    numbers = [np.searchsorted(values, y).astype(np.int64) for y in labels]
    names = tuple(str(value) for value in values.tolist())
    return names, numbers[0], numbers[1] if test is not None else None


def _named_classes(
    train: Samples, test: Samples | None
) -> tuple[tuple[str, ...], np.ndarray, np.ndarray | None]:
    if test is None:
        return train.classes, train.labels, None
    if test.classes != train.classes:
        found = f"the classes {shortened(test.classes)}"
        remedy = "give both splits the same classes"
        raise data_error(test.where, found, f"{shortened(train.classes)} as in training", remedy)
    return train.classes, train.labels, test.labels


def _kind_and_constants(x: np.ndarray, named_kind: str | None) -> tuple[Kind, Constants]:
    """What the samples are, and how they are normalised: not at all if the constants are empty."""
    if x.dtype == np.int64:
        return "text", ((), ())
    if x.dtype == np.uint8 or named_kind in AXES:
        return STORED_AS[x.ndim], measured_constants(x)
    is_image = x.ndim == 4 and x.shape[1] in CHANNELS
    kind: Kind = "image" if is_image else "volume" if x.ndim == 5 else "table"
    return kind, ((), ())


def _held_out(y: np.ndarray, users: np.ndarray | None, how: Assembly, where: str) -> np.ndarray:
    """The mask of the held-out samples; seeds other than 0 shuffle before taking every k-th."""
    if how.seed == 0:
        return holdout.held_out_mask(y, users, how.test_share, where)
    order = stream(Key.root(how.seed).fold("held-out test split")).permutation(len(y))
    mask = np.empty(len(y), dtype=bool)
    shuffled_users = None if users is None else users[order]
    mask[order] = holdout.held_out_mask(y[order], shuffled_users, how.test_share, where)
    return mask


def _both_features(
    train: Samples, test: Samples, how: Assembly
) -> tuple[np.ndarray, np.ndarray, dict[str, str]]:
    """The features of both splits, and what is to be known about the columns of a table."""
    if isinstance(train.x, dict) and isinstance(test.x, dict):
        _check_columns(train.x, test.x)
        made = how.categorical, train.where, how.standardise, how.drop
        features = columns.encode(train.x, test.x, *made)
        whole = {name: np.concatenate([column, test.x[name]]) for name, column in train.x.items()}
        facts = columns.described(whole, features, how.categorical)
        return *columns.feature_matrices(features), facts
    assert isinstance(train.x, np.ndarray) and isinstance(test.x, np.ndarray)
    if train.x.dtype != test.x.dtype:
        found = f"{test.x.dtype} samples"
        remedy = "use the same type in both: uint8 images are normalised, others are not"
        raise data_error(test.where, found, f"{train.x.dtype} as in data", remedy)
    return train.x, test.x, {}


def _check_columns(train: Frame, test: Frame) -> None:
    if differing := sorted(train.keys() ^ test.keys()):
        remedy = f"add or remove: {shortened(differing)}"
        raise data_error("test", shortened(test), "the columns of data", remedy)
    for name in train:
        if train[name].dtype.kind != test[name].dtype.kind:
            found = f"column '{name}' with numbers in one split and text in the other"
            raise data_error("test", found, "the same type as in data", "convert one of them")
