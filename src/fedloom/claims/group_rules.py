"""Rules about more than two cells, or about who reaches a target: orders, trends, the best of some.

rules.py lists them with their keys.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

from pydantic import Field

from fedloom.claims import statistics as st
from fedloom.claims.comparison import Comparison, Read, Region, Series
from fedloom.claims.rule import Rule


class Order(Rule):
    """Every cell above the next, or below it if the first is the smallest."""

    order: tuple[str, ...] = Field(min_length=2)
    first: Literal["largest", "smallest"] = "largest"
    slack: float = Field(default=0.0, ge=0)

    def names(self) -> list[str]:
        """See Rule."""
        return list(self.order)

    def comparisons(self, read: Read, default: str | None) -> list[Comparison]:
        """See Rule."""
        cells = self.cells(default)
        if self.first == "smallest":
            cells.reverse()
        region = Region(low=0.0 - self.slack)
        return [self.compare(a, b, read, region) for a, b in pairwise(cells)]


class Monotone(Rule):
    """Rising or falling from the first cell to the last, with no clear step back."""

    over: tuple[str, ...] = Field(min_length=2)
    direction: Literal["rises", "falls"]
    slack: float = Field(ge=0)

    def names(self) -> list[str]:
        """See Rule."""
        return list(self.over)

    def comparisons(self, read: Read, default: str | None) -> list[Comparison]:
        """See Rule."""
        cells = self.cells(default)
        if self.direction == "falls":
            cells.reverse()
        ends = self.compare(cells[-1], cells[0], read, Region(low=0.0))
        if len(cells) == 2:
            return [ends]
        back = Region(low=0.0 - self.slack)
        steps = [self.compare(b, a, read, back, required=False) for a, b in pairwise(cells)]
        return [ends, *steps]


class Best(Rule):
    """The best of some cells above each of the others: a comparison for every cell outside.

    If there are several inside, the one that is best on the other seeds counts. The cells outside
    are not chosen from: the best of them, chosen on other seeds, is often not the best on this one,
    so a claim about "the best" would be tested against less than the best and agree too often.
    """

    best_in: tuple[str, ...] = Field(min_length=1)
    out: tuple[str, ...] = Field(min_length=1)

    def names(self) -> list[str]:
        """See Rule."""
        return [*self.best_in, *self.out]

    def comparisons(self, read: Read, default: str | None) -> list[Comparison]:
        """See Rule."""
        inside = [_complete(read(self.cell(name, default))) for name in self.best_in]
        if len(inside) == 1:
            label, (best,) = self.best_in[0], inside
        else:
            label, best = f"best of {', '.join(self.best_in)}", st.best_of_other_seeds(inside)
        shared = set.intersection(*map(set, inside))
        return [
            self._above(label, best, shared, name, _complete(read(self.cell(name, default))))
            for name in self.out
        ]

    def _above(
        self, label: str, best: st.BySeed, shared: set[int], name: str, other: st.BySeed
    ) -> Comparison:
        """The comparison with one cell outside; None for a seed on which no best can be chosen."""
        found = st.differences(best, other)
        seeds = sorted(shared & set(other))
        differences = {seed: found.get(seed) for seed in seeds}
        return Comparison(f"{label} - {name}", differences, Region(low=0.0))


def _complete(series: Series) -> dict[int, float]:
    return {seed: value for seed, value in series.values.items() if value is not None}


class GainDifference(Rule):
    """The gain in one column exceeds the gain in another by more than min_gain."""

    gain_of: str
    over: str
    larger_at: str
    than_at: str
    min_gain: float

    def names(self) -> list[str]:
        """See Rule."""
        return [
            f"{row} @ {column}"
            for column in (self.larger_at, self.than_at)
            for row in (self.gain_of, self.over)
        ]

    def comparisons(self, read: Read, default: str | None) -> list[Comparison]:
        """See Rule."""
        ours, theirs, ours_there, theirs_there = self.cells(default)
        region = Region(low=self.min_gain)
        large = self.compare(ours, theirs, read, region)
        small = self.compare(ours_there, theirs_there, read, region).differences
        found = {s: _minus(d, small[s]) for s, d in large.differences.items() if s in small}
        label = f"({large.label}) at {self.larger_at} - the same at {self.than_at}"
        return [Comparison(label, found, region)]


def _minus(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b


class Reaches(Rule):
    """One run reaches a target that the other does not, on more than half of the seeds."""

    reaches: str
    misses: str

    def names(self) -> list[str]:
        """See Rule."""
        return [self.reaches, self.misses]

    def comparisons(self, read: Read, default: str | None) -> list[Comparison]:
        """See Rule."""
        reaching, missing = (read(cell).values for cell in self.cells(default))
        seeds = [seed for seed in sorted(reaching) if seed in missing]
        found = {
            seed: None
            if reaching[seed] is None and missing[seed] is None
            else float(reaching[seed] is not None and missing[seed] is None)
            for seed in seeds
        }
        label = f"share of seeds on which {self.reaches} reaches it and {self.misses} does not"
        return [Comparison(label, found, Region(low=0.5), is_share=True)]
