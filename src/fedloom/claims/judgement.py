"""What one comparison says: agrees, differs or not decided.

Agrees: the interval of the difference lies in its region; for "equal within" the 90 % interval,
which is two one-sided tests at 5 %. Differs: the 95 % interval lies outside. Otherwise it is not
decided, which is never the same as "no difference". Two seeds or fewer decide nothing, except
counted costs, which have no error. Differences that are equal on all seeds decide nothing either:
they have no spread to judge by. After an extension 99 % replaces 95 %.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from fedloom.claims import statistics as st
from fedloom.claims.comparison import Comparison, Region
from fedloom.claims.statistics import Estimate

Outcome = Literal["agrees", "differs", "not decided", "not tested"]
Interval = tuple[float, float]
NO_SPREAD = "all seeds give the same difference, so there is no interval"


@dataclass(frozen=True)
class Judgement:
    """What one comparison says. mean and interval are ratios if logarithms were compared.

    p: of the outcome; if nothing is decided, of the likelier one. reason: why nothing can be said.
    seeds_to_decide: at the level of the one extension; None if more than MOST_SEEDS, or decided.
    """

    comparison: Comparison
    outcome: Outcome
    seeds: int
    p: float = 1.0
    mean: float | None = None
    interval: Interval | None = None
    level: float = st.LEVEL
    seeds_to_decide: int | None = None
    reason: str = ""
    is_counted: bool = False

    @property
    def is_extended(self) -> bool:
        """Whether the one extension to more seeds was made already."""
        return self.level == st.LEVEL_AFTER_EXTENSION


def judge(comparison: Comparison, level: float = st.LEVEL, counted: bool = False) -> Judgement:
    """What the differences of one comparison say."""
    seeds = len(comparison.differences)
    known = [d for d in comparison.differences.values() if d is not None]
    unknown = [seed for seed, d in comparison.differences.items() if d is None]
    if unknown and (seeds > 1 or comparison.is_share):
        reason = _why_unknown(unknown)
        return Judgement(comparison, "not decided", seeds, reason=reason)
    if comparison.is_share:
        return _judge_share(comparison, known, level)
    found = _estimate(comparison, known, counted)
    if found is None:
        reason = f"one seed gives no interval; at least {st.FEWEST_SEEDS} are needed to decide"
        mean = _on_scale(comparison, known[0]) if known else None
        return Judgement(comparison, "not decided", seeds, mean=mean, reason=reason)
    if found.seeds >= st.FEWEST_SEEDS and not counted and found.has_no_spread:
        mean = _on_scale(comparison, found.mean)
        return Judgement(comparison, "not decided", found.seeds, mean=mean, reason=NO_SPREAD)
    return _judge_estimate(comparison, found, level, counted)


def _why_unknown(seeds: list[int]) -> str:
    named = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
    return f"{named} cannot be judged: neither run reached the target, or a figure is missing"


def _estimate(comparison: Comparison, known: list[float], counted: bool) -> Estimate | None:
    if counted and known:
        return st.exact(sum(known) / len(known))
    return st.unpaired(*comparison.pair) if comparison.pair else st.estimate(known)


def _judge_estimate(
    comparison: Comparison, found: Estimate, level: float, counted: bool
) -> Judgement:
    region, enough = comparison.region, counted or found.seeds >= st.FEWEST_SEEDS
    if enough and _agrees(found, region, level):
        outcome: Outcome = "agrees"
    elif enough and _is_outside(found.interval(level), region):
        outcome = "differs"
    else:
        outcome = "not decided"
    shown_level = 2 * level - 1 if region.equal and outcome == "agrees" else level
    low, high = found.interval(shown_level)
    return Judgement(
        comparison,
        outcome,
        found.seeds,
        _p_value(found, region, outcome),
        _on_scale(comparison, found.mean),
        (_on_scale(comparison, low), _on_scale(comparison, high)),
        shown_level,
        _seeds_to_decide(found, region) if outcome == "not decided" else None,
        "" if enough else f"{found.seeds} seeds decide nothing; run {st.FEWEST_SEEDS} or more",
        counted,
    )


def _agrees(found: Estimate, region: Region, level: float) -> bool:
    if region.equal:
        return st.is_equivalent(found, region.high, level)
    return _is_inside(found.interval(level), region)


def _is_inside(interval: Interval, region: Region) -> bool:
    if region.closed:
        return region.low <= interval[0] and interval[1] <= region.high
    return region.low < interval[0] and interval[1] < region.high


def _is_outside(interval: Interval, region: Region) -> bool:
    return interval[1] < region.low or interval[0] > region.high


def _p_value(found: Estimate, region: Region, outcome: Outcome) -> float:
    """Two-sided, as the interval is; one-sided for two one-sided tests."""
    sides = 1 if region.equal else 2
    inside = sides * max(found.p_above(region.low), found.p_below(region.high))
    outside = 2 * min(found.p_below(region.low), found.p_above(region.high))
    by_outcome = {"agrees": inside, "differs": outside}
    return min(1.0, by_outcome.get(outcome, min(inside, outside)))


def _seeds_to_decide(found: Estimate, region: Region) -> int | None:
    """How many seeds would decide if mean and spread stayed the same, for the harder bound.

    More seeds are an extension, which is judged at a higher level.
    """
    level = st.LEVEL_AFTER_EXTENSION
    if region.low < found.mean < region.high:
        bounds = [b for b in (region.low, region.high) if math.isfinite(b)]
        level = 2 * level - 1 if region.equal else level
    else:
        bounds = [region.low if found.mean <= region.low else region.high]
    needed = [st.seeds_to_decide(found, bound, level) for bound in bounds]
    return None if None in needed else max(n for n in needed if n is not None)


def _judge_share(comparison: Comparison, known: list[float], level: float) -> Judgement:
    successes, trials = round(sum(known)), len(known)
    interval = st.share_interval(successes, trials, level) if trials else (0.0, 1.0)
    outcome: Outcome = "not decided"
    if _is_inside(interval, comparison.region):
        outcome = "agrees"
    elif _is_outside(interval, comparison.region):
        outcome = "differs"
    fewer = min(successes, trials - successes)
    p = min(1.0, 2 * st.at_most(fewer, trials, 0.5))
    share = successes / trials if trials else None
    fewest = _fewest_for_share(level)
    reason = f"at least {fewest} seeds are needed to decide a share" if trials < fewest else ""
    needed = None
    if outcome == "not decided" and share is not None:
        needed = _seeds_to_decide_share(share, trials)
    return Judgement(comparison, outcome, trials, p, share, interval, level, needed, reason)


def _seeds_to_decide_share(share: float, trials: int) -> int | None:
    """How many seeds would show on which side of one half the share is, if it stayed the same."""
    error = 1 - st.LEVEL_AFTER_EXTENSION
    for seeds in range(trials, st.MOST_SEEDS + 1):
        successes = round(share * seeds)
        if 2 * st.at_most(min(successes, seeds - successes), seeds, 0.5) < error:
            return seeds
    return None


def _fewest_for_share(level: float) -> int:
    """How many seeds with the same outcome are needed to exclude a share of one half."""
    return math.ceil(math.log2(2 / (1 - level)))


def _on_scale(comparison: Comparison, value: float) -> float:
    """A log ratio as a ratio; other differences as they are."""
    return math.exp(value) if comparison.is_log else value
