"""How one column of a table becomes inputs of a model, once its constants are known.

Numbers:     a missing value takes `fill`, then (value - mean) / std.
Categories:  one 0/1 input per category, up to 20 of them; beyond that the category's position in
             the sorted list, treated as a number. A value that is no category is 0 in all of them,
             or missing as a number.
An extra 0/1 input can mark missing values.

columns.py computes the constants from the training rows of one table. In a deployment the sites
agree on them (deploy/agreement.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedloom.data.sources.frames import as_text, is_missing

MAX_ONE_HOT = 20  # more categories than this become one column of numbers


@dataclass(frozen=True)
class Scale:
    """What numbers are filled in and standardised with."""

    fill: float
    mean: float
    std: float

    def apply(self, values: np.ndarray) -> np.ndarray:
        scaled: np.ndarray = (np.where(np.isnan(values), self.fill, values) - self.mean) / self.std
        return scaled


@dataclass(frozen=True)
class ColumnPlan:
    """The constants of one column.

    levels: the categories, sorted; None for a column of numbers. scale: of numbers and of positions
    in a long list of categories; None for 0/1 inputs. marks_missing: whether there is an extra
    input for missing values.
    """

    name: str
    levels: tuple[str, ...] | None = None
    scale: Scale | None = None
    marks_missing: bool = False

    @property
    def inputs(self) -> list[str]:
        """The names of the inputs, in order."""
        one_hot = self.scale is None and self.levels is not None
        names = [f"{self.name}={level}" for level in self.levels or ()] if one_hot else [self.name]
        return [*names, *([f"{self.name} is missing"] if self.marks_missing else [])]

    def encode(self, column: np.ndarray) -> list[np.ndarray]:
        """The inputs that a column becomes, in the order of `inputs`."""
        if self.levels is None:
            values = column
        else:
            values = as_text(column)
            if self.scale is not None:
                values = positions(np.array(self.levels), values)
        if self.scale is not None:
            encoded = [self.scale.apply(values)]
        else:
            encoded = [values == level for level in self.levels or ()]
        return [*encoded, *([is_missing(values)] if self.marks_missing else [])]


def positions(levels: np.ndarray, column: np.ndarray) -> np.ndarray:
    """The position of each value in the sorted levels; NaN for unknown values.

    >>> positions(np.array(["a", "c"]), np.array(["c", "b", "a"])).tolist()
    [1.0, nan, 0.0]
    """
    position = np.minimum(np.searchsorted(levels, column), len(levels) - 1)
    return np.where(levels[position] == column, position, np.nan)
