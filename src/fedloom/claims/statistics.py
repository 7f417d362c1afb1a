"""The statistics of the verdicts, in one place.

The unit is the difference within one seed, since two runs with the same seed share their clients,
cohorts, batches and initial weights. Over n seeds the mean difference m has the interval

    m  +-  t(n - 1) * std / sqrt(n)

Ratios and rounds are compared on a log scale: their differences of logarithms are treated alike.
There is no bootstrap: with 3 to 8 seeds its intervals are too short.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedloom.metrics.paired import t_probability, t_quantile

LEVEL = 0.95
LEVEL_AFTER_EXTENSION = 0.99  # for the second look, after a suite was extended
FEWEST_SEEDS = 3  # with two seeds or fewer nothing is decided, except counted costs
MOST_SEEDS = 200  # beyond this no number of seeds is named
ROUNDING = 1e-12  # of differences of figures, relative to them
HALVINGS = 100  # of the bracket around a share; far more than double precision needs

BySeed = Mapping[int, float]


@dataclass(frozen=True)
class Estimate:
    """A mean with its standard error. freedom: the degrees of freedom of the error.

    An exact number, such as a counted cost, has no error and no degrees of freedom.
    """

    mean: float
    error: float
    freedom: int
    seeds: int

    @property
    def has_no_spread(self) -> bool:
        """Whether all differences are equal, but for rounding."""
        return self.error <= ROUNDING * max(1.0, abs(self.mean))

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """The t interval at this level.

        >>> [round(end, 3) for end in estimate([2.0, 1.0, 3.0]).interval()]
        [-0.484, 4.484]
        """
        if not self.error:
            return self.mean, self.mean
        half = t_quantile((1 + level) / 2, self.freedom) * self.error
        return self.mean - half, self.mean + half

    def p_above(self, bound: float) -> float:
        """The one-sided p-value for a true mean above the bound."""
        if not self.error:
            return 0.0 if self.mean > bound else 1.0
        t = (self.mean - bound) / self.error
        below = t_probability(abs(t), self.freedom)
        return 1 - below if t >= 0 else below

    def p_below(self, bound: float) -> float:
        """The one-sided p-value for a true mean below the bound."""
        return Estimate(-self.mean, self.error, self.freedom, self.seeds).p_above(-bound)


def estimate(differences: Sequence[float]) -> Estimate | None:
    """The mean of the differences, one per seed, with its error; None with fewer than two."""
    count = len(differences)
    if count < 2:
        return None
    error = statistics.stdev(differences) / math.sqrt(count)
    return Estimate(statistics.fmean(differences), error, count - 1, count)


def exact(value: float) -> Estimate:
    """A number without error, such as a counted cost."""
    return Estimate(value, 0.0, 0, 1)


def unpaired(ours: Sequence[float], theirs: Sequence[float]) -> Estimate | None:
    """The difference of two means over seeds that share nothing: Welch's t.

    The degrees of freedom are rounded down, which makes the interval slightly longer.
    """
    if min(len(ours), len(theirs)) < 2:
        return None
    variances = [statistics.variance(values) / len(values) for values in (ours, theirs)]
    total = sum(variances)
    parts = [v**2 / (len(x) - 1) for v, x in zip(variances, (ours, theirs), strict=True)]
    freedom = math.floor(total**2 / sum(parts)) if total else len(ours) + len(theirs) - 2
    mean = statistics.fmean(ours) - statistics.fmean(theirs)
    return Estimate(mean, math.sqrt(total), freedom, min(len(ours), len(theirs)))


def differences(ours: BySeed, theirs: BySeed) -> dict[int, float]:
    """Ours minus theirs, for the seeds that both have."""
    return {seed: ours[seed] - theirs[seed] for seed in sorted(ours) if seed in theirs}


def is_equivalent(found: Estimate, within: float, level: float = LEVEL) -> bool:
    """Whether the true mean is within +-`within`: two one-sided tests at 1 - level each (TOST).

    This is the same as a 90 % interval inside +-within, for a level of 95 %.
    """
    return max(found.p_above(-within), found.p_below(within)) < 1 - level


def best_of_other_seeds(groups: Sequence[BySeed]) -> dict[int, float]:
    """By seed the value of the group that is best on the mean of the other seeds.

    Choosing and scoring on the same seed would favour the larger set of groups.

    >>> best_of_other_seeds([{0: 1.0, 1: 5.0}, {0: 2.0, 1: 4.0}])
    {0: 1.0, 1: 4.0}
    """
    seeds = sorted(set.intersection(*(set(group) for group in groups)))

    def mean_without(seed: int, group: BySeed) -> float:
        return statistics.fmean(group[other] for other in seeds if other != seed)

    if len(seeds) < 2:
        return {}
    return {seed: max(groups, key=lambda g: mean_without(seed, g))[seed] for seed in seeds}


def log_rounds(ours: float | None, theirs: float | None, last_round: int | None) -> float | None:
    """log(ours / theirs) of two numbers of rounds to a target; None if that is not known.

    A run that does not reach the target counts as its last round plus one: it is the slower one,
    and the true ratio is more extreme. If neither reaches the target, nothing is known.

    >>> round(log_rounds(None, 50, 99), 4), log_rounds(None, None, 99)
    (0.6931, None)
    """
    if (ours is None and theirs is None) or (last_round is None and None in (ours, theirs)):
        return None
    beyond = float(last_round or 0) + 1
    return math.log(beyond if ours is None else ours) - math.log(
        beyond if theirs is None else theirs
    )


def share_interval(successes: int, trials: int, level: float = LEVEL) -> tuple[float, float]:
    """The exact interval of a share (Clopper and Pearson).

    >>> [round(end, 3) for end in share_interval(6, 6)]
    [0.541, 1.0]
    """
    tail = (1 - level) / 2
    low = 0.0 if not successes else 1 - _largest_share(trials - successes, trials, tail)
    high = 1.0 if successes == trials else _largest_share(successes, trials, tail)
    return low, high


def _largest_share(successes: int, trials: int, tail: float) -> float:
    """The share with which at most this number of successes has the probability `tail`."""
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        share = (low + high) / 2
        if at_most(successes, trials, share) > tail:
            low = share
        else:
            high = share
    return high


def at_most(successes: int, trials: int, share: float) -> float:
    """The probability of at most this number of successes, each with probability `share`."""
    terms = (
        math.comb(trials, k) * share**k * (1 - share) ** (trials - k) for k in range(successes + 1)
    )
    return math.fsum(terms)


def survives_holm(p_values: Mapping[str, float], alpha: float = 1 - LEVEL) -> set[str]:
    """The names that Holm's step-down procedure rejects, with family-wise error below alpha.

    >>> sorted(survives_holm({"a": 0.01, "b": 0.03, "c": 0.04}))
    ['a']
    """
    rejected: set[str] = set()
    for place, name in enumerate(sorted(p_values, key=lambda n: (p_values[n], n))):
        if p_values[name] > alpha / (len(p_values) - place):
            break
        rejected.add(name)
    return rejected


def half_width(spread: float, seeds: int, level: float = LEVEL) -> float:
    """Half the length of the interval with this standard deviation between seeds."""
    return t_quantile((1 + level) / 2, seeds - 1) * spread / math.sqrt(seeds)


def seeds_to_decide(found: Estimate, bound: float, level: float = LEVEL) -> int | None:
    """How many seeds separate the mean from the bound, if mean and spread stay the same."""
    spread = found.error * math.sqrt(found.seeds)
    return _fewest_seeds(max(found.seeds, FEWEST_SEEDS), abs(found.mean - bound), spread, level)


def _fewest_seeds(start: int, reach: float, spread: float, level: float) -> int | None:
    """The first number of seeds whose half-width is below `reach`; None beyond MOST_SEEDS."""
    choices = range(start, MOST_SEEDS + 1)
    place = bisect_left(choices, True, key=lambda n: half_width(spread, n, level) <= reach)
    return choices[place] if place < len(choices) else None
