"""Data sets given as arrays: tables, signals, images or volumes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedloom.data.dataset import Dataset, Kind
from fedloom.data.sources import holdout
from fedloom.data.sources.array_kinds import as_kind, check_options, kind_of, to_float32
from fedloom.data.sources.build import RawSplit, build_dataset, raw_split
from fedloom.data.sources.client_column import check_ids_repeat

STORED_AS: dict[int, Kind] = {2: "table", 3: "signal", 4: "image", 5: "volume"}  # by axes


def split_from_arrays(
    x: np.ndarray,
    y: object,
    where: object,
    users: object = None,
    kind: str | None = None,
    channels: str | None = None,
) -> RawSplit:
    """A split as it is stored; for kind and channels see array_kinds.py."""
    check_options(kind, channels)
    samples = as_kind(x, kind or kind_of(x, where), channels, where)
    return raw_split(samples, y, where, users)


def dataset_from_splits(
    name: str,
    train: RawSplit,
    test: RawSplit | None,
    test_share: float,
    about: Mapping[str, str],
    classes: Sequence[str] = (),
) -> Dataset:
    """The data set of one or two splits; without a test split a share is held out.

    Tables are standardised with the moments of their training rows.
    """
    about = dict(about)
    if train.users is not None:
        check_ids_repeat(train.users, f"{train.where}, the users")
    if test is None:
        about["test split"] = holdout.description(test_share, train.users is not None)
        train, test = holdout.split_off_test(train, test_share)
    kind = STORED_AS[train.x.ndim]
    if kind == "table" and train.x.shape[1:] == test.x.shape[1:]:
        mean, std = column_moments(train.x)
        train, test = (replace(s, x=to_float32((s.x - mean) / std)) for s in (train, test))
    return build_dataset(name, kind, train, test, about, classes)


def column_moments(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each column in float64; std is 1 for a constant column."""
    std = x.std(axis=0, dtype=np.float64)
    return x.mean(axis=0, dtype=np.float64), np.where(std > 0, std, 1.0)
