"""The forms of a rule: which cells are compared, and where their difference must lie.

A cell is a row and a column of a paper's table, written "row @ column"; without the column it is
that of the rule, or the only one of the claim's preset. Every form becomes comparisons of a
difference by seed with a region. The claim agrees if all differences lie in their regions, and
differs if one lies outside, both beyond doubt (verdict.py).

better, than, min_gain                      a gain of more than min_gain, in every column
not_better, than, max_gain                  no gain of max_gain or more
not_worse, than, max_loss                   no loss of max_loss or more
a, b, within                                equal within +-within
gain_of, over, at_least, at_most            a gain in this range
gain_of, over, larger_at, than_at, min_gain the gain in one column exceeds that in another
of, to, at_least, at_most                   a ratio in this range
order, first, slack                         each is above the next; first = "smallest": below
over, direction, slack                      the last is above the first ("rises") or below it
                                            ("falls"), and no step goes back by more than slack
best_in, out                                the best of some is above the best of others
reaches, misses                             one reaches a target that the other does not
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedloom.claims import statistics as st
from fedloom.core.errors import UserError

COUNTED = {"macs", "stored_parameters", "bytes", "bytes_up_and_down", "peak_bytes"}
TO_TARGET = {"rounds_to_target", "seconds_to_target"}

Cell = tuple[str, str]


@dataclass(frozen=True)
class Series:
    """The figures of one cell by seed; None where a run did not reach its target.

    rounds: how long the runs were, if that is known.
    """

    values: Mapping[int, float | None]
    rounds: int | None = None


Read = Callable[[Cell], Series]


@dataclass(frozen=True)
class Region:
    """Where a difference must lie. closed: the ends belong to it, as for a range of ratios.

    equal: the region is a margin around 0, which is tested by two one-sided tests.
    """

    low: float = -math.inf
    high: float = math.inf
    closed: bool = False
    equal: bool = False


@dataclass(frozen=True)
class Comparison:
    """A difference by seed and its region. A difference of logarithms is a log ratio.

    differences: None where a seed cannot be judged. required: it must lie in the region; if not,
    it only must not lie outside. pair: the two samples, if they share no seeds.
    """

    label: str
    differences: Mapping[int, float | None]
    region: Region
    is_log: bool = False
    required: bool = True
    is_share: bool = False
    pair: tuple[Sequence[float], Sequence[float]] | None = None


class Rule(BaseModel):
    """What all forms have in common."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    is_ratio: ClassVar[bool] = False

    metric: str
    column: str | None = None
    scale: Literal["linear", "log"] = "linear"

    @property
    def is_counted(self) -> bool:
        """Whether the figures are counted exactly, so that one is enough."""
        return self.metric in COUNTED

    @property
    def is_log(self) -> bool:
        """Whether logarithms are compared."""
        return self.is_ratio or self.scale == "log" or self.metric in TO_TARGET

    def names(self) -> list[str]:
        """The cells as they are written."""
        raise NotImplementedError

    def cells(self, default: str | None) -> list[Cell]:
        """All cells that the rule compares. default: the column of names without one."""
        return [self.cell(name, default) for name in self.names()]

    def cell(self, name: str, default: str | None) -> Cell:
        """The cell that is written like this."""
        row, separator, column = name.partition(" @ ")
        if separator:
            return row, column
        if (column_of_rule := self.column or default) is None:
            raise UserError(f"'{name}' names no column; write it as '{name} @ COLUMN'")
        return row, column_of_rule

    def comparisons(self, read: Read, default: str | None) -> list[Comparison]:
        """What is compared. read: gives the figures of a cell."""
        raise NotImplementedError

    def compare(
        self, above: Cell, below: Cell, read: Read, region: Region, required: bool = True
    ) -> Comparison:
        """The difference, or the log ratio, of two cells."""
        sign = "/" if self.is_log else "-"
        label = f"{_written(above, below)} {sign} {_written(below, above)}"
        ours, theirs = read(above), read(below)
        seeds = [seed for seed in sorted(ours.values) if seed in theirs.values]
        found = {seed: self._difference(seed, ours, theirs) for seed in seeds}
        return Comparison(label, found, region, self.is_log, required)

    def _difference(self, seed: int, ours: Series, theirs: Series) -> float | None:
        a, b = ours.values[seed], theirs.values[seed]
        if self.metric in TO_TARGET:
            last = ours.rounds if ours.rounds == theirs.rounds else None
            return st.log_rounds(a, b, last if self.metric == "rounds_to_target" else None)
        if a is None or b is None:
            return None
        if not self.is_log:
            return a - b
        return math.log(a / b) if a > 0 and b > 0 else None


def _written(cell: Cell, other: Cell) -> str:
    """A cell for a message: its row, and its column where the two differ in it."""
    return cell[0] if cell[1] == other[1] else f"{cell[0]} @ {cell[1]}"


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
    """The best of some cells above the best of others, each chosen on the other seeds."""

    best_in: tuple[str, ...] = Field(min_length=1)
    out: tuple[str, ...] = Field(min_length=1)

    def names(self) -> list[str]:
        """See Rule."""
        return [*self.best_in, *self.out]

    def comparisons(self, read: Read, default: str | None) -> list[Comparison]:
        """See Rule."""
        inside, outside = (
            [_complete(read(self.cell(name, default))) for name in names]
            for names in (self.best_in, self.out)
        )
        found = st.differences(st.best_of_other_seeds(inside), st.best_of_other_seeds(outside))
        label = f"best of {', '.join(self.best_in)} - best of {', '.join(self.out)}"
        seeds = set.intersection(*(set(values) for values in [*inside, *outside]))
        return [Comparison(label, {s: found.get(s) for s in sorted(seeds)}, Region(low=0.0))]


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


# By the key that only this form has. Where a key occurs in two forms, the first that fits counts.
FORMS: dict[str, type[Rule]] = {
    "better": Gain,
    "not_better": NotBetter,
    "not_worse": NotWorse,
    "within": Equal,
    "of": Ratio,
    "order": Order,
    "direction": Monotone,
    "best_in": Best,
    "larger_at": GainDifference,
    "gain_of": GainRange,
    "reaches": Reaches,
}


def parse_rule(raw: Mapping[str, Any]) -> Rule:
    """The rule that a table of a claims file describes; a UserError says what is wrong with it.

    >>> parse_rule({"better": "fedmix", "than": "fedavg", "metric": "accuracy", "min_gain": 1.0})
    Gain(metric='accuracy', column=None, scale='linear', better='fedmix', than='fedavg', \
min_gain=1.0, columns=(), unpaired=False)
    """
    form = next((FORMS[key] for key in FORMS if key in raw), None)
    if form is None:
        raise UserError(f"a rule needs one of these keys: {', '.join(FORMS)}; it has {list(raw)}")
    try:
        return form.model_validate(raw)
    except ValidationError as error:
        problems = [f"{_path(e['loc'])}: {e['msg']}" for e in error.errors()]
        raise UserError(f"the rule is not of the form '{form.__name__}': {problems[0]}") from None


def _path(location: Sequence[int | str]) -> str:
    return ".".join(map(str, location)) or "rule"
