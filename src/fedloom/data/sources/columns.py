"""Table columns as features; medians, moments and categories come from the training rows only.

Numbers:     missing values take the median, then the column is standardised; a column with
             missing values gets an extra 0/1 column that marks them.
Categories:  one 0/1 column per category (one-hot), up to 20 categories; beyond that the category's
             position in the sorted list, treated as a number.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedloom.data.sources.array_kinds import to_float32
from fedloom.data.sources.arrays import column_moments
from fedloom.data.sources.column_plan import MAX_ONE_HOT, ColumnPlan, Scale, positions
from fedloom.data.sources.errors import data_error
from fedloom.data.sources.frames import Frame, as_text, is_missing
from fedloom.data.sources.number_format import is_number


@dataclass(frozen=True)
class Feature:
    """A feature: its name, its values in both splits, (median, mean, std) of numbers.

    column: the column of the table that it comes from. levels: its categories, if the feature is
    the position in a long list of them.
    """

    name: str
    train: np.ndarray
    test: np.ndarray
    scale: tuple[float, float, float] | None = None
    column: str = ""
    levels: tuple[str, ...] = ()

    def described(self) -> dict[str, object]:
        """What is needed to encode a new table in the same way, as JSON."""
        if self.scale is None:
            return {"name": self.name}
        median, mean, std = self.scale
        levels = {"levels": list(self.levels)} if self.levels else {}
        return {"name": self.name, "median": median, "mean": mean, "std": std, **levels}


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
    of numbers as they are, apart from missing values. `drop` tells the user how to leave a column
    out.
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
        else:
            encoded = _filled_in(name, train[name], test[name], place, remedy, standardise)
        features += [replace(feature, column=name) for feature in encoded]
    return features


def is_categorical(name: str, frame: Frame, categorical: Collection[str]) -> bool:
    """Whether a column holds categories: it is text, or named in `categorical`."""
    return frame[name].dtype.kind != "f" or name in categorical


def described(
    frame: Frame, features: Sequence[Feature], categorical: Collection[str]
) -> dict[str, str]:
    """What `Dataset.about` says of a table: its inputs with their constants, and its columns."""
    return {
        "columns": json.dumps([feature.described() for feature in features]),
        "features": json.dumps(_column_facts(frame, features, categorical)),
    }


def _column_facts(
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


def _filled_in(
    name: str, train: np.ndarray, test: np.ndarray, where: str, drop: str, standardise: bool = True
) -> list[Feature]:
    """A column of numbers, standardised or as they are, and one that marks missing values."""
    scale = _scale(train, test, where, drop)
    plan = ColumnPlan(
        name,
        scale=scale if standardise else Scale(scale.fill, 0.0, 1.0),
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


def _categories(
    name: str, train: np.ndarray, test: np.ndarray, where: str, drop: str
) -> list[Feature]:
    levels = np.unique(train[train != ""])
    if len(levels) <= MAX_ONE_HOT:
        missing = bool(is_missing(train).any() or is_missing(test).any())
        return _features(ColumnPlan(name, tuple(levels.tolist()), None, missing), train, test)
    if 2 * len(levels) > len(train):
        found = f"{len(levels)} different values in {len(train)} training rows"
        if all(map(is_number, levels.tolist())):
            drop = f"turn its text into numbers, or {drop}"
        raise data_error(where, found, "a category", drop)
    both = positions(levels, train), positions(levels, test)
    position, *marks = _filled_in(name, *both, where, drop)
    return [replace(position, levels=tuple(levels.tolist())), *marks]
