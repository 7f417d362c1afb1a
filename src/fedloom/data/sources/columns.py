"""Table columns as features; medians, moments and categories come from the training rows only.

Numbers:     missing values take the median, then the column is standardised; a column with
             missing values gets an extra 0/1 column that marks them.
Categories:  one 0/1 column per category (one-hot), up to 20 categories; beyond that the category's
             position in the sorted list, treated as a number.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedloom.data.sources.array_kinds import to_float32
from fedloom.data.sources.arrays import column_moments
from fedloom.data.sources.errors import data_error
from fedloom.data.sources.frames import Frame, as_text, is_missing

MAX_ONE_HOT = 20  # more categories than this become one column of numbers


@dataclass(frozen=True)
class Feature:
    """A feature: its name, its values in both splits, (median, mean, std) if standardised.

    column: the column of the table that it comes from.
    """

    name: str
    train: np.ndarray
    test: np.ndarray
    scale: tuple[float, float, float] | None = None
    column: str = ""

    def described(self) -> dict[str, object]:
        """What is needed to encode a new table in the same way, as JSON."""
        if self.scale is None:
            return {"name": self.name}
        median, mean, std = self.scale
        return {"name": self.name, "median": median, "mean": mean, "std": std}


def encode(
    train: Frame,
    test: Frame,
    categorical: Collection[str],
    where: object,
    standardise: bool = True,
    drop: str = "leave the column out with drop='{}'",
) -> list[Feature]:
    """The features of all columns, in order.

    Text columns and those named in `categorical` are categories. standardise=False keeps columns
    of numbers as they are; missing values are then rejected. `drop` tells the user how to leave a
    column out.
    """
    if not train:
        remedy = "add columns or drop fewer"
        raise data_error(where, "no column apart from the target", "features", remedy)
    features: list[Feature] = []
    for name in train:
        place, remedy = f"{where}, column '{name}'", drop.format(name)
        if is_categorical(name, train, categorical):
            texts = as_text(train[name]), as_text(test[name])
            encoded = _categories(name, *texts, place, remedy)
        elif standardise:
            encoded = _standardised(name, train[name], test[name], place, remedy)
        else:
            encoded = [_unchanged(name, train[name], test[name], place, remedy)]
        features += [replace(feature, column=name) for feature in encoded]
    return features


def is_categorical(name: str, frame: Frame, categorical: Collection[str]) -> bool:
    """Whether a column holds categories: it is text, or named in `categorical`."""
    return frame[name].dtype.kind != "f" or name in categorical


def column_facts(
    frame: Frame, features: Sequence[Feature], categorical: Collection[str]
) -> list[dict[str, object]]:
    """What became of each column of the whole table, as JSON."""
    return [
        {
            "name": name,
            "kind": "categorical" if is_categorical(name, frame, categorical) else "numeric",
            "inputs": sum(feature.column == name for feature in features),
            "one_hot": any(f.name.startswith(f"{name}=") for f in features if f.column == name),
            "missing": int(is_missing(frame[name]).sum()),
        }
        for name in frame
    ]


def feature_matrices(features: Sequence[Feature]) -> tuple[np.ndarray, np.ndarray]:
    """The features as columns, for both splits, float32."""
    train = np.stack([feature.train for feature in features], axis=1)
    test = np.stack([feature.test for feature in features], axis=1)
    return to_float32(train), to_float32(test)


def _standardised(
    name: str, train: np.ndarray, test: np.ndarray, where: str, drop: str
) -> list[Feature]:
    remedy = f"{drop}, or repair it"
    if any(np.isinf(to_float32(values)).any() for values in (train, test)):
        raise data_error(where, "infinity", "finite float32 numbers", remedy)
    if np.isnan(train).all():
        raise data_error(where, "no value in the training rows", "at least one", remedy)
    median = float(np.nanmedian(train))
    filled = [np.where(np.isnan(values), median, values) for values in (train, test)]
    mean, std = (float(moment) for moment in column_moments(filled[0]))
    scaled = [(values - mean) / std for values in filled]
    feature = Feature(name, scaled[0], scaled[1], (median, mean, std))
    return [feature, *_missing_marks(name, train, test)]


def _unchanged(name: str, train: np.ndarray, test: np.ndarray, where: str, drop: str) -> Feature:
    for values in (train, test):
        is_finite = np.isfinite(to_float32(values))
        if not is_finite.all():
            found = f"NaN or infinity in {int((~is_finite).sum())} rows"
            remedy = f"fill in the missing values, or {drop}"
            raise data_error(where, found, "finite float32 numbers", remedy)
    return Feature(name, train, test)


def _missing_marks(name: str, train: np.ndarray, test: np.ndarray) -> list[Feature]:
    """A 0/1 column that marks missing values, if there are any."""
    missing = is_missing(train), is_missing(test)
    if missing[0].any() or missing[1].any():
        return [Feature(f"{name} is missing", *missing)]
    return []


def _categories(
    name: str, train: np.ndarray, test: np.ndarray, where: str, drop: str
) -> list[Feature]:
    levels = np.unique(train[train != ""])
    if len(levels) <= MAX_ONE_HOT:
        one_hot = [
            Feature(f"{name}={level}", train == level, test == level) for level in levels.tolist()
        ]
        return one_hot + _missing_marks(name, train, test)
    if 2 * len(levels) > len(train):
        found = f"{len(levels)} different values in {len(train)} training rows"
        raise data_error(where, found, "a category", drop)
    positions = _positions(levels, train), _positions(levels, test)
    return _standardised(name, *positions, where, drop)


def _positions(levels: np.ndarray, column: np.ndarray) -> np.ndarray:
    """The position of each value in the sorted levels; NaN for unknown values."""
    position = np.minimum(np.searchsorted(levels, column), len(levels) - 1)
    return np.where(levels[position] == column, position, np.nan)
