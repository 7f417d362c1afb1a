"""What a sweep or a search varies: settings, each with the values that it may take.

    train.lr=0.01,0.03,0.1     these values
    train.lr=0.001..0.1        any value from 0.001 to 0.1, where values are drawn

A range whose ends are positive and at least a factor of 10 apart is drawn on a log scale; a range
between two integers gives integers.
"""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedloom.core.errors import UserError, shown, shown_text
from fedloom.core.spec import literal
from fedloom.settings.overrides import SHORT_NAMES

Combination = tuple[tuple[str, Any], ...]  # settings with the values that they take together
DECADE = 10  # from this ratio of its ends on, a range is drawn on a log scale
SIGNIFICANT = 4  # digits of a number that is drawn: more only make names long
_COMMA = re.compile(r",(?![^()\[\]]*[)\]])")  # not inside parentheses or brackets
_RANGE = re.compile(r"([-+.\deE]+?)\.\.([-+.\deE]+)")  # of numbers: a path may hold .. too


@dataclass(frozen=True)
class Range:
    """All numbers from low to high, both included."""

    low: float
    high: float

    @property
    def integers(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def log(self) -> bool:
        """Whether numbers are drawn on a log scale."""
        return self.low > 0 and self.high / self.low >= DECADE

    def draw(self, draws: random.Random) -> float:
        """A number at random."""
        if self.log:
            value = math.exp(draws.uniform(math.log(self.low), math.log(self.high)))
        else:
            value = draws.uniform(self.low, self.high)
        return self.rounded(value)

    def rounded(self, value: float) -> float:
        """The value as a setting: an integer where both ends are, else with a few digits."""
        number = round(value) if self.integers else float(f"{value:.{SIGNIFICANT}g}")
        return min(max(number, self.low), self.high)

    def __str__(self) -> str:
        return f"{self.low:g}..{self.high:g}{' (log)' if self.log else ''}"


@dataclass(frozen=True)
class Axis:
    """A setting and what it may be: one of several values, or any in a range."""

    setting: str
    values: tuple[Any, ...] | Range

    def draw(self, draws: random.Random) -> Any:
        """A value at random."""
        if isinstance(self.values, Range):
            return self.values.draw(draws)
        return draws.choice(self.values)

    def __str__(self) -> str:
        if isinstance(self.values, Range):
            return f"{self.setting}={self.values}"
        return f"{self.setting}={','.join(map(str, self.values))}"


def axis(text: str) -> Axis:
    """The axis in a text such as train.lr=0.01,0.1 or train.lr=0.001..0.1."""
    name, equals, listed = text.partition("=")
    values = [value.strip() for value in _COMMA.split(listed)]
    if not equals or not all(name.strip().split(".")) or not all(values):
        raise UserError(
            f"--over '{shown_text(text)}' is not of the form SETTING=VALUE,VALUE or "
            "SETTING=LOW..HIGH; for example --over train.lr=0.01,0.1"
        )
    setting = _full_name(name)
    if len(values) == 1 and (ends := _RANGE.fullmatch(values[0])) is not None:
        return Axis(setting, _range(text, literal(ends[1]), literal(ends[2])))
    return Axis(setting, _distinct(setting, [literal(value) for value in values]))


def axes(over: Mapping[str, Any]) -> list[Axis]:
    """The axes of a Python call: a list of values for each setting, or text as in `axis`."""
    if not isinstance(over, Mapping) or not all(isinstance(name, str) for name in over):
        raise UserError(
            f"over={shown(over)} is no dictionary of settings; "
            "write for example {'train.lr': [0.01, 0.1]}"
        )
    result = []
    for name, values in over.items():
        if isinstance(values, str):
            result.append(axis(f"{name}={values}"))
        elif isinstance(values, Sequence) and len(values):
            setting = _full_name(name)
            result.append(Axis(setting, _distinct(setting, values)))
        else:
            wrong = "lists no values" if isinstance(values, Sequence) else "is no list"
            raise UserError(
                f"over={{'{shown_text(name)}': {shown(values)}}} {wrong}; "
                "write a list, or text such as '0.001..0.1'"
            )
    return result


def check_axes(found: Sequence[Axis]) -> None:
    """Raise for a setting that occurs twice, and for what cannot be varied."""
    names = [one.setting for one in found]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"--over names '{name}' twice; list all of its values once")
        if name == "seed":
            raise UserError("--over seed: seeds are counted, not listed; write --seeds 3")
        if name == "data.validation":
            raise UserError(
                "--over data.validation: runs that are evaluated on different samples cannot be "
                "compared; set it once for all of them: --set data.validation=0.2"
            )


def grid(found: Sequence[Axis]) -> list[Combination]:
    """Every combination of the values, the last axis changing fastest."""
    lists = []
    for one in found:
        if isinstance(one.values, Range):
            raise UserError(
                f"--over {one}: a grid needs values, not a range; "
                "list them, or draw from the range with --random N"
            )
        lists.append([(one.setting, value) for value in one.values])
    return list(itertools.product(*lists))


def grid_size(found: Sequence[Axis]) -> int | None:
    """How many combinations there are; None with a range, which has no end of them."""
    size = 1
    for one in found:
        if isinstance(one.values, Range):
            return None
        size *= len(one.values)
    return size


def drawn(found: Sequence[Axis], count: int, seed: int) -> list[Combination]:
    """A number of different combinations at random; all of them if there are no more.

    A larger count begins with the combinations of a smaller one, unless it takes all of them.
    """
    size = grid_size(found)
    if size is not None and count >= size:
        return grid(found)
    draws = random.Random(seed)
    chosen: dict[str, Combination] = {}
    for _ in range(1000 * count):  # a range of few integers may have fewer values
        combination = tuple((one.setting, one.draw(draws)) for one in found)
        chosen.setdefault(repr(combination), combination)
        if len(chosen) == count:
            break
    return list(chosen.values())


def label(combination: Combination) -> str:
    """A combination as a table names it.

    >>> label((("train.lr", 0.1), ("method", "fedprox(mu=1)")))
    'train.lr=0.1 method=fedprox(mu=1)'
    """
    return " ".join(f"{name}={value}" for name, value in combination)


def _full_name(name: str) -> str:
    return SHORT_NAMES.get(name.strip(), name.strip())


def _range(text: str, low: Any, high: Any) -> Range:
    numbers = all(isinstance(end, int | float) and not isinstance(end, bool) for end in (low, high))
    if not numbers or not -math.inf < low < high < math.inf:
        raise UserError(
            f"--over {shown_text(text)}: a range goes from a number to a larger one; "
            "for example 0.001..0.1"
        )
    return Range(low, high)


def _distinct(setting: str, values: Sequence[Any]) -> tuple[Any, ...]:
    for number, value in enumerate(values):
        if any(_same(value, other) for other in values[:number]):
            raise UserError(f"--over {setting} lists {shown(value)} twice; list each value once")
    return tuple(values)


def _same(one: Any, other: Any) -> bool:
    """Whether two values are one setting, or would have one name; true is not 1."""
    both_or_neither = isinstance(one, bool) == isinstance(other, bool)
    return str(one) == str(other) or (both_or_neither and bool(one == other))
