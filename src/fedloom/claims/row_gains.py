"""How a row of a table compares with the baseline, seed by seed: differences, or ratios.

Rounds to a target and the size of the Hessian are compared as ratios, on a log scale, as the rules
of the claims do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from fedloom.claims.result_files import Figure
from fedloom.claims.statistics import estimate

RATIOS = {"lambda_max", "H_T", "H_N"}  # columns besides those that count rounds
MISSED, NOT_POSITIVE = "target not reached", "a figure is not positive"


def compares_ratios(figure: Figure) -> bool:
    """Whether the rows of this figure's column are compared as ratios."""
    return figure.column in RATIOS or figure.metric.startswith("rounds")


@dataclass(frozen=True)
class RowGains:
    """By seed the difference or log ratio of a row and the baseline. why: why there is none."""

    by_seed: Mapping[int, float]
    is_ratio: bool
    why: str = ""

    def cells(self, level: float) -> list[str]:
        """The gains by seed, their mean and its interval, as text."""
        values = list(self.by_seed.values())
        if not values:
            return ["-", "-", "-"]
        by_seed = " ".join(map(self._written, values))
        found = estimate(values)
        if found is None:
            return [by_seed, self._written(values[0]), "-"]
        mean = self._written(found.mean)
        if found.has_no_spread:
            return [by_seed, mean, "-"]
        low, high = map(self._written, found.interval(level))
        return [by_seed, mean, f"[{low}, {high}]"]

    def _written(self, value: float) -> str:
        return f"{math.exp(value):.3g}" if self.is_ratio else f"{value:+.2f}"


def row_gains(figure: Figure, base: Figure) -> RowGains:
    """The gains of a row over the baseline, for the seeds that both have.

    If a target was not reached on some seed, there are none: the other seeds alone would be biased
    towards fast runs.
    """
    is_ratio = compares_ratios(figure)
    if None in (*figure.by_seed.values(), *base.by_seed.values()):
        return RowGains({}, is_ratio, MISSED)
    ours, theirs = known(figure), known(base)
    seeds = [seed for seed in ours if seed in theirs]
    if not is_ratio:
        return RowGains({seed: ours[seed] - theirs[seed] for seed in seeds}, is_ratio)
    if any(min(ours[seed], theirs[seed]) <= 0 for seed in seeds):
        return RowGains({}, is_ratio, NOT_POSITIVE)
    return RowGains({seed: math.log(ours[seed] / theirs[seed]) for seed in seeds}, is_ratio)


def known(figure: Figure) -> dict[int, float]:
    """The figures by seed without targets that were not reached."""
    return {seed: value for seed, value in figure.by_seed.items() if value is not None}
