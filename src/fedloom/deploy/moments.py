"""Mean and standard deviation over all sites, from three numbers of each.

A site sends the count, the sum, and the sum of squared deviations from its own mean: the same
information as the sum of squares, without the cancellation that would make it useless for numbers
far from zero, such as years.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from fedloom.core import json_checks as must_be


@dataclass(frozen=True)
class Moments:
    """Count, sum, and sum of squared deviations from the mean, of numbers that are not missing."""

    count: int
    total: float
    squares: float

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    @property
    def std(self) -> float:
        """The standard deviation; 1 if all numbers are equal, so that one can divide by it."""
        std = math.sqrt(self.squares / self.count) if self.count else 0.0
        rounding = 4 * np.finfo(np.float64).eps * abs(self.mean)
        return std if std > rounding else 1.0


def of_numbers(values: np.ndarray) -> Moments:
    """The moments of floats, in float64; NaN stands for a missing value.

    >>> of_numbers(np.array([1.0, 3.0, np.nan]))
    Moments(count=2, total=4.0, squares=2.0)
    """
    present = values[~np.isnan(values)].astype(np.float64)
    if not len(present):
        return Moments(0, 0.0, 0.0)
    total, mean = float(present.sum()), float(present.mean())
    if (present == present[0]).all():  # rounding may give it a tiny spread
        return Moments(len(present), total, 0.0)
    return Moments(len(present), total, float(np.square(present - mean).sum()))


def of_bytes(values: np.ndarray) -> Moments:
    """The moments of bytes, exact from their histogram and rounded once.

    >>> of_bytes(np.array([0, 255], dtype=np.uint8))
    Moments(count=2, total=255, squares=32512.5)
    """
    histogram = np.bincount(values.ravel(), minlength=256).tolist()
    count, total = sum(histogram), sum(n * v for v, n in enumerate(histogram))
    raw = sum(n * v * v for v, n in enumerate(histogram))
    squares = raw - Fraction(total * total, count) if count else 0
    return Moments(count, total, float(squares))


def merged(parts: Sequence[Moments]) -> Moments:
    """The moments of all numbers together.

    >>> merged([Moments(1, 1.0, 0.0), Moments(1, 3.0, 0.0)]) == Moments(2, 4.0, 2.0)
    True
    """
    count = sum(part.count for part in parts)
    total = math.fsum(part.total for part in parts)
    mean = total / count if count else 0.0
    between = math.fsum(part.count * (part.mean - mean) ** 2 for part in parts)
    return Moments(count, total, math.fsum(part.squares for part in parts) + between)


def filled(moments: Moments, rows: int) -> Moments:
    """The moments of a column with this many rows, with the mean for what is missing.

    >>> filled(Moments(2, 4.0, 2.0), 4)
    Moments(count=4, total=8.0, squares=2.0)
    """
    return Moments(rows, moments.mean * rows, moments.squares)


def from_json(facts: Any) -> Moments | None:
    """The moments of a checked report; None if the site does not share them."""
    return None if facts is None else Moments(**facts)


CHECK = must_be.fields(
    {"count": must_be.integer(), "total": must_be.number(), "squares": must_be.number(low=0)}
)
