"""Columns as features; everything learnt from the data is learnt from the training rows.

Numbers: gaps take the median, then the column is standardised; where there are gaps a 0/1 column says so.
Words:   a 0/1 column a word, up to 20 words; beyond that the place of the word in the sorted list, treated as a number.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedloom.data.sources.arrays import moments, to_float32
from fedloom.data.sources.errors import bad
from fedloom.data.sources.frames import Frame, gaps, words

FEW = 20


@dataclass(frozen=True)
class Feature:
    """One column of the result: its name, its values in both splits, and (median, mean, std) where it was standardised."""

    name: str
    train: np.ndarray
    test: np.ndarray
    scale: tuple[float, float, float] | None = None

    def described(self) -> dict[str, object]:
        """What must be known to treat a new table alike, as JSON."""
        known = (
            {}
            if self.scale is None
            else dict(zip(("median", "mean", "std"), self.scale, strict=True))
        )
        return {"name": self.name, **known}


def features(train: Frame, test: Frame, categorical: Collection[str], path: Path) -> list[Feature]:
    """The features of all columns in their order."""
    if not train:
        raise bad(path, "no column beside the target", "features", "add columns or drop fewer")
    found: list[Feature] = []
    for name in train:
        where = f"{path}, column '{name}'"
        if train[name].dtype.kind != "f" or name in categorical:
            found += _words(name, words(train[name]), words(test[name]), where)
        else:
            found += _numbers(name, train[name], test[name], where)
    return found


def matrix(found: Sequence[Feature]) -> tuple[np.ndarray, np.ndarray]:
    """The features side by side in both splits, float32."""
    train, test = (
        np.stack(side, axis=1) for side in ([f.train for f in found], [f.test for f in found])
    )
    return to_float32(train), to_float32(test)


def _numbers(name: str, train: np.ndarray, test: np.ndarray, where: str) -> list[Feature]:
    remedy = f"leave the column out with drop='{name}', or repair it"
    if any(np.isinf(to_float32(values)).any() for values in (train, test)):
        raise bad(where, "infinity", "finite numbers of float32", remedy)
    if np.isnan(train).all():
        raise bad(where, "no value in the training rows", "some", remedy)
    median = float(np.nanmedian(train))
    filled = [np.where(np.isnan(values), median, values) for values in (train, test)]
    mean, std = (float(m) for m in moments(filled[0]))
    scaled = [(values - mean) / std for values in filled]
    return [Feature(name, scaled[0], scaled[1], (median, mean, std)), *_gaps(name, train, test)]


def _gaps(name: str, train: np.ndarray, test: np.ndarray) -> list[Feature]:
    missing = gaps(train), gaps(test)
    return [Feature(f"{name} is missing", *missing)] if missing[0].any() or missing[1].any() else []


def _words(name: str, train: np.ndarray, test: np.ndarray, where: str) -> list[Feature]:
    levels = np.unique(train[train != ""])
    if len(levels) <= FEW:
        return [
            Feature(f"{name}={level}", train == level, test == level) for level in levels.tolist()
        ] + _gaps(name, train, test)
    if 2 * len(levels) > len(train):
        found = f"{len(levels)} different words in {len(train)} training rows"
        raise bad(where, found, "a category", f"leave the column out with drop='{name}'")
    return _numbers(name, _places(levels, train), _places(levels, test), where)


def _places(levels: np.ndarray, column: np.ndarray) -> np.ndarray:
    """The place of each word in the sorted list; NaN for those not in it."""
    place = np.minimum(np.searchsorted(levels, column), len(levels) - 1)
    return np.where(levels[place] == column, place, np.nan)
