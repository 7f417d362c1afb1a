"""What a rule compares: figures of two cells by seed, and where their difference must lie."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Unit = Literal["seed", "turn"]
Cell = tuple[str, str]  # the row and the column of a table


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
    it only must not lie outside. pair: the two samples, if they share no seeds. unit: what the
    differences are repeated over; timings, which have no seed, are repeated in turns.
    """

    label: str
    differences: Mapping[int, float | None]
    region: Region
    is_log: bool = False
    required: bool = True
    is_share: bool = False
    pair: tuple[Sequence[float], Sequence[float]] | None = None
    unit: Unit = "seed"
