"""Data sets given as arrays: tables, signals, images or volumes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedloom.data.dataset import Dataset, Kind
from fedloom.data.sources import holdout
from fedloom.data.sources.array_kinds import as_kind, check_options, kind_of, to_float32
from fedloom.data.sources.build import RawSplit, build_dataset, raw_split
from fedloom.data.sources.client_column import check_ids_repeat
from fedloom.data.sources.unscaled import Unscaled, unscaled

STORED_AS: dict[int, Kind] = {2: "table", 3: "signal", 4: "image", 5: "volume"}  # by axes


def split_from_arrays(
    x: np.ndarray,
    y: object,
    where: object,
    users: object = None,
    kind: str | None = None,
    channels: str | None = None,
    task: str = "classification",
) -> RawSplit:
    """A split as it is stored; for kind and channels see array_kinds.py."""
    check_options(kind, channels)
    samples = as_kind(x, kind or kind_of(x, where), channels, where)
    return raw_split(samples, y, where, users, task)


def dataset_from_splits(
    name: str,
    train: RawSplit,
    test: RawSplit | None,
    test_share: float,
    about: Mapping[str, str],
    classes: Sequence[str] = (),
    task: str = "classification",
) -> Dataset:
    """The data set of one or two splits; without a test split a share is held out.

    Tables are standardised with the moments of their training rows.
    """
    train, test, about = _both_splits(train, test, test_share, about, task)
    kind = STORED_AS[train.x.ndim]
    if kind == "table" and train.x.shape[1:] == test.x.shape[1:]:
        mean, std = column_moments(train.x)
        about["columns"] = _described(train.x, mean, std)
        train, test = (replace(s, x=to_float32((s.x - mean) / std)) for s in (train, test))
    return build_dataset(name, kind, train, test, about, classes, task=task)


def unscaled_splits(
    train: RawSplit,
    test: RawSplit | None,
    test_share: float,
    about: Mapping[str, str],
    classes: Sequence[str] = (),
) -> Unscaled:
    """As `dataset_from_splits`, with nothing computed from the samples."""
    train, test, about = _both_splits(train, test, test_share, about)
    kind = STORED_AS[train.x.ndim]
    if not classes:  # a site may have any of them, so there is no check for gaps
        labels = np.unique(np.concatenate([train.y, test.y]))
        train, test = (replace(s, y=np.searchsorted(labels, s.y)) for s in (train, test))
        classes = [str(label) for label in labels.tolist()]
    # for its checks and its numbers of users; it changes no sample
    data = unscaled(build_dataset("", kind, train, test, about, classes))
    if kind != "table":
        return data
    assert isinstance(data.x, np.ndarray)
    columns = data.x.astype(np.float64).T
    return replace(data, x={str(i): column for i, column in enumerate(columns, start=1)})


def _both_splits(
    train: RawSplit,
    test: RawSplit | None,
    test_share: float,
    about: Mapping[str, str],
    task: str = "classification",
) -> tuple[RawSplit, RawSplit, dict[str, str]]:
    about = dict(about)
    if train.users is not None:
        check_ids_repeat(train.users, f"{train.where}, the users")
    if test is None:
        about["test split"] = holdout.description(test_share, train.users is not None, task=task)
        train, test = holdout.split_off_test(train, test_share)
    return train, test, about


def _described(x: np.ndarray, mean: np.ndarray, std: np.ndarray) -> str:
    """What is needed to encode new rows in the same way, as JSON; columns are named 1, 2, ..."""
    medians = np.median(x, axis=0).tolist()
    constants = zip(medians, mean.tolist(), std.tolist(), strict=True)
    named = enumerate(constants, start=1)
    return json.dumps(
        [{"name": str(i), "median": median, "mean": m, "std": s} for i, (median, m, s) in named]
    )


def column_moments(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each column in float64; std is 1 for a constant column."""
    std = x.std(axis=0, dtype=np.float64)
    return x.mean(axis=0, dtype=np.float64), np.where(std > 0, std, 1.0)
