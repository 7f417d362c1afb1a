"""The difference between two methods over the seeds that both have, with a confidence interval.

Two runs with the same seed share their clients, cohorts and batches, so the seeds are compared one
by one. With d_s the difference at seed s, n seeds and mean m:

    m  +-  t(n - 1) * std(d) / sqrt(n)

t is the quantile of Student's distribution, exact if the differences are normally distributed. One
seed has no interval, however long the run was.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

CONFIDENCE = 0.95
HALVINGS = 200  # of the bracket around a quantile; far more than double precision needs


@dataclass(frozen=True)
class PairedDifference:
    """The mean difference over the shared seeds, and its interval; None with fewer than two."""

    mean: float
    seeds: int
    interval: tuple[float, float] | None

    @property
    def excludes_zero(self) -> bool:
        """Whether the sign of the difference is clear: the interval lies on one side of 0."""
        return self.interval is not None and not self.interval[0] <= 0 <= self.interval[1]


def paired_difference(
    ours: Mapping[int, float], theirs: Mapping[int, float], confidence: float = CONFIDENCE
) -> PairedDifference | None:
    """Ours minus theirs, both given by seed; None if they share no seed.

    >>> found = paired_difference({0: 3.0, 1: 5.0, 2: 9.0}, {0: 1.0, 1: 4.0, 2: 6.0})
    >>> found.mean, [round(end, 3) for end in found.interval]
    (2.0, [-0.484, 4.484])
    """
    differences = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
    if not differences:
        return None
    mean, count = statistics.fmean(differences), len(differences)
    if count == 1:
        return PairedDifference(mean, 1, None)
    error = statistics.stdev(differences) / math.sqrt(count)
    half = t_quantile((1 + confidence) / 2, count - 1) * error
    return PairedDifference(mean, count, (mean - half, mean + half))


def t_quantile(probability: float, freedom: int) -> float:
    """The value below which Student's t lies with this probability, which is at least one half.

    >>> round(t_quantile(0.975, 2), 4), round(t_quantile(0.975, 9), 4)
    (4.3027, 2.2622)
    """
    low, high = 0.0, 1.0
    while t_probability(high, freedom) < probability:
        high *= 2
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if t_probability(middle, freedom) < probability:
            low = middle
        else:
            high = middle
    return high


def t_probability(value: float, freedom: int) -> float:
    """The probability that Student's t with these degrees of freedom is below a value >= 0.

    The finite sums of Abramowitz and Stegun, 26.7.3 and 26.7.4, with tan(angle) = t / sqrt(n).
    """
    angle = math.atan(value / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    is_odd = freedom % 2
    total, term = 0.0, cosine if is_odd else 1.0
    for factor in range(2 + is_odd, freedom + 1, 2):
        total += term
        term *= cosine**2 * (factor - 1) / factor
    within = 2 / math.pi * (angle + sine * total) if is_odd else sine * total
    return (1 + within) / 2
