"""Rules that compare one cell with another: better, not better, equal, a gain or ratio in a range.

rules.py lists them with their keys.
"""

from __future__ import annotations

import math
from typing import ClassVar

from pydantic import Field

from fedloom.claims.comparison import Cell, Comparison, Read, Region
from fedloom.claims.rule import Rule


class Gain(Rule):
    """A gain of more than min_gain. unpaired: the two share no seeds."""

    better: str
    than: str
    min_gain: float
    columns: tuple[str, ...] = ()
    unpaired: bool = False

    def names(self) -> list[str]:
        """See Rule."""
        names = [self.better, self.than]
        return [f"{n} @ {c}" for c in self.columns for n in names] or names

    def comparisons(self, read: Read, default: str | None) -> list[Comparison]:
        """See Rule."""
        cells, region = self.cells(default), Region(low=self.min_gain)
        pairs = zip(cells[::2], cells[1::2], strict=True)
        if not self.unpaired:
            return [self.compare(a, b, read, region) for a, b in pairs]
        return [self._compare_unpaired(a, b, read, region) for a, b in pairs]

    def _compare_unpaired(self, a: Cell, b: Cell, read: Read, region: Region) -> Comparison:
        paired = self.compare(a, b, read, region)
        ours, theirs = ([v for v in read(cell).values.values() if v is not None] for cell in (a, b))
        return Comparison(paired.label, paired.differences, region, pair=(ours, theirs))


class NotBetter(Rule):
    """A gain of less than max_gain."""

    not_better: str
    than: str
    max_gain: float

    def names(self) -> list[str]:
        """See Rule."""
        return [self.not_better, self.than]

    def comparisons(self, read: Read, default: str | None) -> list[Comparison]:
        """See Rule."""
        ours, theirs = self.cells(default)
        return [self.compare(ours, theirs, read, Region(high=self.max_gain))]


class NotWorse(Rule):
    """A loss of less than max_loss."""

    not_worse: str
    than: str
    max_loss: float

    def names(self) -> list[str]:
        """See Rule."""
        return [self.not_worse, self.than]

    def comparisons(self, read: Read, default: str | None) -> list[Comparison]:
        """See Rule."""
        ours, theirs = self.cells(default)
        return [self.compare(ours, theirs, read, Region(low=0.0 - self.max_loss))]


class Equal(Rule):
    """Equal within a margin."""

    a: str
    b: str
    within: float = Field(gt=0)

    def names(self) -> list[str]:
        """See Rule."""
        return [self.a, self.b]

    def comparisons(self, read: Read, default: str | None) -> list[Comparison]:
        """See Rule."""
        a, b = self.cells(default)
        return [self.compare(a, b, read, Region(-self.within, self.within, equal=True))]


class GainRange(Rule):
    """A gain between two bounds."""

    gain_of: str
    over: str
    at_least: float
    at_most: float

    def names(self) -> list[str]:
        """See Rule."""
        return [self.gain_of, self.over]

    def comparisons(self, read: Read, default: str | None) -> list[Comparison]:
        """See Rule."""
        ours, theirs = self.cells(default)
        region = Region(self.at_least, self.at_most, closed=True)
        return [self.compare(ours, theirs, read, region)]


class Ratio(Rule):
    """A ratio between two bounds; at_least = 0 is no lower bound."""

    is_ratio: ClassVar[bool] = True

    of: str
    to: str
    at_least: float = Field(ge=0)
    at_most: float = Field(gt=0)

    def names(self) -> list[str]:
        """See Rule."""
        return [self.of, self.to]

    def comparisons(self, read: Read, default: str | None) -> list[Comparison]:
        """See Rule."""
        of, to = self.cells(default)
        low = math.log(self.at_least) if self.at_least else -math.inf
        return [self.compare(of, to, read, Region(low, math.log(self.at_most), closed=True))]
