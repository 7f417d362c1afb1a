"""Data sets given as arrays: images if a sample has two or three dimensions, a table if one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedloom.data.dataset import Dataset, Kind
from fedloom.data.sources import holdout
from fedloom.data.sources.build import RawSplit, build_dataset, raw_split
from fedloom.data.sources.client_column import check_ids_repeat
from fedloom.data.sources.errors import data_error
from fedloom.data.sources.pixel_arrays import as_uint8_images


def split_from_arrays(x: np.ndarray, y: object, where: object, users: object = None) -> RawSplit:
    """A split of uint8 images or of float32 features."""
    samples = _features(x, where) if x.ndim == 2 else as_uint8_images(x, where)
    return raw_split(samples, y, where, users)


def _features(x: np.ndarray, where: object) -> np.ndarray:
    if x.dtype.kind not in "biuf":
        remedy = "encode them as numbers, or use the format table"
        raise data_error(where, f"features of type {x.dtype}", "numbers", remedy)
    features = to_float32(x)
    is_finite = np.isfinite(features)
    if not is_finite.all():
        row = int(np.flatnonzero(~is_finite.all(axis=1))[0])
        raise data_error(
            where,
            f"NaN or infinity in sample {row}",
            "finite float32 features",
            "fill in the missing values, or use the format table",
        )
    return features


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
    kind: Kind = "table" if train.x.ndim == 2 else "image"
    if kind == "table" and train.x.shape[1:] == test.x.shape[1:]:
        mean, std = column_moments(train.x)
        train, test = (replace(s, x=to_float32((s.x - mean) / std)) for s in (train, test))
    return build_dataset(name, kind, train, test, about, classes)


def to_float32(x: np.ndarray) -> np.ndarray:
    """As float32; values out of range become infinity, which the checks report."""
    with np.errstate(over="ignore"):
        return x.astype(np.float32)


def column_moments(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each column in float64; std is 1 for a constant column."""
    std = x.std(axis=0, dtype=np.float64)
    return x.mean(axis=0, dtype=np.float64), np.where(std > 0, std, 1.0)
