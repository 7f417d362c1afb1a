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
from fedloom.data.sources.column_plan import MAX_ONE_HOT, ColumnPlan, Scale, positions
from fedloom.data.sources.errors import data_error
from fedloom.data.sources.frames import Frame, as_text, is_missing


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
    plan = ColumnPlan(
        name,
        scale=_scale(train, test, where, drop),
        marks_missing=bool(is_missing(train).any() or is_missing(test).any()),
    )
    return _features(plan, train, test)


def _scale(train: np.ndarray, test: np.ndarray, where: str, drop: str) -> Scale:
    """The constants of a column of numbers."""
    remedy = f"{drop}, or repair it"
    if any(np.isinf(to_float32(values)).any() for values in (train, test)):
        raise data_error(where, "infinity", "finite float32 numbers", remedy)
    if np.isnan(train).all():
        raise data_error(where, "no value in the training rows", "at least one", remedy)
    median = float(np.nanmedian(train))
    filled = np.where(np.isnan(train), median, train)
    mean, std = (float(moment) for moment in column_moments(filled))
    return Scale(median, mean, std)


def _features(plan: ColumnPlan, train: np.ndarray, test: np.ndarray) -> list[Feature]:
    """The inputs of a column in both splits."""
    both = zip(plan.inputs, plan.encode(train), plan.encode(test), strict=True)
    constants = None
    if plan.scale is not None:
        constants = plan.scale.fill, plan.scale.mean, plan.scale.std
    return [
        Feature(name, in_train, in_test, constants if name == plan.name else None)
        for name, in_train, in_test in both
    ]


def _unchanged(name: str, train: np.ndarray, test: np.ndarray, where: str, drop: str) -> Feature:
    for values in (train, test):
        is_finite = np.isfinite(to_float32(values))
        if not is_finite.all():
            found = f"NaN or infinity in {int((~is_finite).sum())} rows"
            remedy = f"fill in the missing values, or {drop}"
            raise data_error(where, found, "finite float32 numbers", remedy)
    return Feature(name, train, test)


def _categories(
    name: str, train: np.ndarray, test: np.ndarray, where: str, drop: str
) -> list[Feature]:
    levels = np.unique(train[train != ""])
    if len(levels) <= MAX_ONE_HOT:
        missing = bool(is_missing(train).any() or is_missing(test).any())
        return _features(ColumnPlan(name, tuple(levels.tolist()), None, missing), train, test)
    if 2 * len(levels) > len(train):
        found = f"{len(levels)} different values in {len(train)} training rows"
        raise data_error(where, found, "a category", drop)
    return _standardised(name, positions(levels, train), positions(levels, test), where, drop)
