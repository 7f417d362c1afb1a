"""Data sets from Python values: arrays, torch Datasets and pandas DataFrames.

Features reach the model as they were passed, as float32: nothing is standardised. Only bytes
(uint8 images and volumes), and what kind= says are signals or volumes, are normalised, with the
mean and std per channel of the training split, as the readers of files do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fedloom.core.errors import UserError
from fedloom.core.key import Key
from fedloom.data.dataset import Dataset, Kind
from fedloom.data.identity import identity_sha256
from fedloom.data.partition.draws import stream
from fedloom.data.sources import columns, holdout
from fedloom.data.sources.array_kinds import AXES
from fedloom.data.sources.arrays import STORED_AS
from fedloom.data.sources.build import build_dataset, raw_split
from fedloom.data.sources.constants import Constants, measured_constants
from fedloom.data.sources.errors import data_error, shortened
from fedloom.data.sources.frames import Frame
from fedloom.data.sources.pixel_arrays import CHANNELS
from fedloom.data.sources.python_values import Layout, Samples, read_values, reject_options
from fedloom.data.sources.torch_dataset import check_test_share

DEFAULT_TEST_SHARE = 0.2


def as_dataset(
    data: Any,
    *,
    test: Any = None,
    client_ids: Any = None,
    target: str | None = None,
    client: str | None = None,
    kind: str | None = None,
    channels: str | None = None,
    name: str | None = None,
    test_share: float = DEFAULT_TEST_SHARE,
    seed: int = 0,
) -> Dataset:
    """The data set of values from Python.

    data        (X, y) of arrays, tensors or nested lists; a map-style torch Dataset of (x, y); a
                DataFrame; or a fedloom Dataset, which is returned as it is, without other options.
    test        the test split, in the same form as data. Without it a share `test_share` of each
                class (of each client's samples, if there are client ids) is held out: every k-th
                sample for seed 0, for another seed every k-th after shuffling.
    client_ids  one id (int or str) per sample of `data`, for the partition "user".
    target      DataFrames: the column with the labels.
    client      DataFrames: the column with the client ids.
    kind        (X, y) and torch Datasets: "signal" for (N,L) or (N,C,L), "volume" for (N,D,H,W) or
                (N,C,D,H,W), "image", or "table"; by default the shape and the type decide.
    channels    signals and volumes: "last" if the channels are the last axis.
    name        by default "python:arrays-" and the start of the digest of the content.

    X of type uint8 with shape (N,H,W), (N,H,W,C) or (N,C,H,W) are images, with five axes volumes,
    and are normalised; so are signals and volumes named by `kind`. All other X keep shape and
    values, as float32. Labels are numbers or strings; the distinct ones, sorted, are the classes.
    Text columns of a DataFrame are one-hot encoded (columns.py).
    """
    if isinstance(data, Dataset):
        options = {
            "test": test is not None,
            "client_ids": client_ids is not None,
            "target": target is not None,
            "client": client is not None,
            "kind": kind is not None,
            "channels": channels is not None,
            "name": name is not None,
            "test_share": test_share != DEFAULT_TEST_SHARE,
            "seed": seed != 0,
        }
        reject_options(options, "a fedloom Dataset already has its splits, clients and name")
        return data
    check_test_share(test_share)
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise UserError(f"seed={seed!r} must be a whole number (0 holds out every k-th sample)")
    layout = Layout(kind, channels)
    train_samples, test_samples = read_values(data, test, client_ids, target, client, layout)
    dataset = _build(train_samples, test_samples, test_share, seed, type(data).__name__, kind)
    return replace(dataset, name=name or f"python:arrays-{content_digest(dataset)[:12]}")


def content_digest(dataset: Dataset) -> str:
    """The sha256 of the samples, labels, users, class names and constants, as hex digits.

    The name and `about` do not count.
    """
    return identity_sha256(dataset)


def _class_numbers(
    train: Samples, test: Samples | None
) -> tuple[tuple[str, ...], np.ndarray, np.ndarray | None]:
    """The class names, and the labels of both splits as positions in them."""
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


def _build(
    train: Samples,
    test: Samples | None,
    test_share: float,
    seed: int,
    source: str,
    named_kind: str | None,
) -> Dataset:
    about = {"format": "python", "source": source}
    classes, train_y, test_y = _class_numbers(train, test)
    if test is None or test_y is None:
        about["test split"] = holdout.description(test_share, train.users is not None)
        mask = _held_out(train_y, train.users, test_share, seed, train.where)
        test, test_y = train.take(mask), train_y[mask]
        train, train_y = train.take(~mask), train_y[~mask]
    train_x, test_x = _both_features(train, test)
    kind, constants = _kind_and_constants(train_x, named_kind)
    train_split = raw_split(train_x, train_y, train.where, train.users)
    test_split = raw_split(test_x, test_y, test.where, test.users)
    return build_dataset("", kind, train_split, test_split, about, classes, constants)


def _kind_and_constants(x: np.ndarray, named_kind: str | None) -> tuple[Kind, Constants]:
    """What the samples are, and how they are normalised: not at all if the constants are empty."""
    if x.dtype == np.uint8 or named_kind in AXES:
        return STORED_AS[x.ndim], measured_constants(x)
    is_image = x.ndim == 4 and x.shape[1] in CHANNELS
    kind: Kind = "image" if is_image else "volume" if x.ndim == 5 else "table"
    return kind, ((), ())


def _held_out(
    y: np.ndarray, users: np.ndarray | None, share: float, seed: int, where: str
) -> np.ndarray:
    """The mask of the held-out samples; seeds other than 0 shuffle before taking every k-th."""
    if seed == 0:
        return holdout.held_out_mask(y, users, share, where)
    order = stream(Key.root(seed).fold("held-out test split")).permutation(len(y))
    mask = np.empty(len(y), dtype=bool)
    shuffled_users = None if users is None else users[order]
    mask[order] = holdout.held_out_mask(y[order], shuffled_users, share, where)
    return mask


def _both_features(train: Samples, test: Samples) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(train.x, dict) and isinstance(test.x, dict):
        _check_columns(train.x, test.x)
        drop = "leave the column out with data.drop(columns='{}')"
        features = columns.encode(train.x, test.x, (), train.where, standardise=False, drop=drop)
        return columns.feature_matrices(features)
    assert isinstance(train.x, np.ndarray) and isinstance(test.x, np.ndarray)
    if train.x.dtype != test.x.dtype:
        found = f"{test.x.dtype} samples"
        remedy = "use the same type in both: uint8 images are normalised, others are not"
        raise data_error(test.where, found, f"{train.x.dtype} as in data", remedy)
    return train.x, test.x


def _check_columns(train: Frame, test: Frame) -> None:
    if differing := sorted(train.keys() ^ test.keys()):
        remedy = f"add or remove: {shortened(differing)}"
        raise data_error("test", shortened(test), "the columns of data", remedy)
    for name in train:
        if train[name].dtype.kind != test[name].dtype.kind:
            found = f"column '{name}' with numbers in one split and text in the other"
            raise data_error("test", found, "the same type as in data", "convert one of them")
