"""One claim and the figures of one result file: agrees, differs or not decided.

Agrees: the interval of every difference lies in its region; for "equal within" the 90 % interval,
which is two one-sided tests at 5 %. Differs: the 95 % interval of one difference lies outside.
Otherwise it is not decided, which is never the same as "no difference". Two seeds or fewer decide
nothing, except counted costs, which have no error. After an extension 99 % replaces 95 %.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from fedloom.claims import statistics as st
from fedloom.claims.claim import Claim
from fedloom.claims.result_files import ResultFile
from fedloom.claims.rules import Comparison, Region
from fedloom.claims.statistics import Estimate

Outcome = Literal["agrees", "differs", "not decided", "not tested"]
Interval = tuple[float, float]


@dataclass(frozen=True)
class Judgement:
    """What one comparison says. mean and interval are ratios if logarithms were compared.

    p: of the outcome; without one, of the likelier of the two. reason: why nothing can be said.
    """

    comparison: Comparison
    outcome: Outcome
    seeds: int
    p: float = 1.0
    mean: float | None = None
    interval: Interval | None = None
    level: float = st.LEVEL
    seeds_to_halve: int | None = None
    seeds_to_decide: int | None = None
    reason: str = ""
    is_counted: bool = False


@dataclass(frozen=True)
class Verdict:
    """A claim's verdict. fair: the gate was met; gate: what the gate says.

    judgement: of the comparison that settles it, or that is furthest from being settled.
    p: None for counted costs, which have no error. survives_holm: decided even after Holm's
    correction for all tested claims of the paper; None where there is nothing to correct.
    """

    claim: Claim
    outcome: Outcome
    fair: bool = False
    gate: str = ""
    suite: str | None = None
    judgement: Judgement | None = None
    p: float | None = None
    survives_holm: bool | None = None

    @property
    def is_decided(self) -> bool:
        """Whether the figures agree with the claim or differ from it."""
        return self.outcome in ("agrees", "differs")

    @property
    def seeds(self) -> int:
        """The seeds that both sides of the comparison have."""
        return self.judgement.seeds if self.judgement else 0

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        if self.judgement is None:
            return "not tested: no result file has all the figures"
        said = f"{self.outcome}: {describe(self.judgement)}"
        return said if self.fair else f"{said}; not a fair test: {self.gate}"

    def describe(self) -> dict[str, Any]:
        """As JSON."""
        found = self.judgement
        return {
            "id": self.claim.id,
            "paper": self.claim.paper,
            "where": self.claim.where,
            "text": self.claim.text,
            "verdict": self.outcome,
            "fair": self.fair,
            "gate": self.gate,
            "compared": found.comparison.label if found else None,
            "mean": found.mean if found else None,
            "interval": list(found.interval) if found and found.interval else None,
            "level": found.level if found and found.interval else None,
            "seeds": self.seeds,
            "seeds_to_halve": found.seeds_to_halve if found else None,
            "seeds_to_decide": found.seeds_to_decide if found else None,
            "p": self.p,
            "survives_holm": self.survives_holm,
            "suite": self.suite,
            "sentence": self.sentence,
        }


def verdict(claim: Claim, result: ResultFile) -> Verdict | None:
    """The verdict of one result file; None if it lacks a figure that the rule compares."""
    read = result.reader(claim)
    if read is None:
        return None
    level = st.LEVEL_AFTER_EXTENSION if result.extended else st.LEVEL
    comparisons = claim.rule.comparisons(read, claim.preset.only_column)
    judgements = [judge(c, level, claim.rule.is_counted) for c in comparisons]
    if not all(j.seeds for j in judgements):
        return None
    outcome, settling = _combine(judgements)
    gate = result.gate_of(claim)
    p = None if claim.rule.is_counted else _joint_p(outcome, judgements)
    return Verdict(claim, outcome, gate.met is True, gate.why, result.suite, settling, p)


def _combine(judgements: list[Judgement]) -> tuple[Outcome, Judgement]:
    """The outcome of all comparisons, and the one that settles it."""
    outside = [j for j in judgements if j.outcome == "differs"]
    if outside:
        return "differs", min(outside, key=lambda j: j.p)
    required = [j for j in judgements if j.comparison.required]
    open_ones = [j for j in required if j.outcome != "agrees"]
    if open_ones:
        return "not decided", open_ones[0]
    return "agrees", max(required, key=lambda j: j.p)


def _joint_p(outcome: Outcome, judgements: list[Judgement]) -> float:
    """All comparisons must agree, so the largest p counts; if any may differ, Bonferroni's."""
    if outcome == "differs":
        smallest = min(j.p for j in judgements if j.outcome == "differs")
        return min(1.0, len(judgements) * smallest)
    return max(j.p for j in judgements if j.comparison.required)


def judge(comparison: Comparison, level: float = st.LEVEL, counted: bool = False) -> Judgement:
    """What the differences of one comparison say."""
    known = [d for d in comparison.differences.values() if d is not None]
    seeds = len(comparison.differences)
    if len(known) < seeds:
        reason = _why_unknown([seed for seed, d in comparison.differences.items() if d is None])
        return Judgement(comparison, "not decided", seeds, reason=reason)
    if comparison.is_share:
        return _judge_share(comparison, known, level)
    found = _estimate(comparison, known, counted)
    if found is None:
        reason = f"1 seed has no interval; {st.FEWEST_SEEDS} is the fewest that can decide"
        mean = _on_scale(comparison, known[0]) if known else None
        return Judgement(comparison, "not decided", seeds, mean=mean, reason=reason)
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
    agree_level = 2 * level - 1 if region.equal else level
    if enough and _agrees(found, region, level):
        outcome: Outcome = "agrees"
    elif enough and _is_outside(found.interval(level), region):
        outcome = "differs"
    else:
        outcome = "not decided"
    shown_level = agree_level if outcome == "agrees" else level
    low, high = found.interval(shown_level)
    is_open = outcome == "not decided"
    return Judgement(
        comparison,
        outcome,
        found.seeds,
        _p_value(found, region, outcome),
        _on_scale(comparison, found.mean),
        (_on_scale(comparison, low), _on_scale(comparison, high)),
        shown_level,
        st.seeds_to_halve(found.seeds, level) if is_open else None,
        _seeds_to_decide(found, region, level) if is_open else None,
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


def _seeds_to_decide(found: Estimate, region: Region, level: float) -> int | None:
    """How many seeds would decide if mean and spread stayed: for the bound that takes most."""
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
    reason = f"{fewest} seeds are the fewest that can decide a share" if trials < fewest else ""
    return Judgement(comparison, outcome, trials, p, share, interval, level, reason=reason)


def _fewest_for_share(level: float) -> int:
    """How many seeds, all on one side, exclude a share of one half."""
    return math.ceil(math.log2(2 / (1 - level)))


def _on_scale(comparison: Comparison, value: float) -> float:
    """A log ratio as a ratio; other differences as they are."""
    return math.exp(value) if comparison.is_log else value


def describe(found: Judgement) -> str:
    """A judgement in words: what was compared, the interval, the region, the seeds needed."""
    parts = [_measured(found), _wanted(found.comparison)]
    if found.reason:
        parts.append(found.reason)
    elif found.outcome == "not decided":
        parts.append(_more_seeds(found))
    return "; ".join(part for part in parts if part)


def _measured(found: Judgement) -> str:
    label, seeds = found.comparison.label, found.seeds
    plural = "" if seeds == 1 else "s"
    if found.mean is None:
        return f"{label}, {seeds} seed{plural}"
    if found.interval is None:
        return f"{label} {number(found, found.mean)}, {seeds} seed{plural}"
    low, high = (number(found, end) for end in found.interval)
    if found.is_counted:
        return f"{label} {low}, counted"
    interval = f"[{low}, {high}]"
    return (
        f"{label} {number(found, found.mean)} {interval}, {found.level:.0%}, {seeds} seed{plural}"
    )


def _wanted(comparison: Comparison) -> str:
    low, high = comparison.region.low, comparison.region.high
    if comparison.is_log:
        low, high = math.exp(low), math.exp(high)
    has_low = math.isfinite(low) and not (comparison.is_log and low == 0)
    if has_low and math.isfinite(high):
        return f"claimed: {low:.4g} to {high:.4g}"
    return f"claimed: above {low:.4g}" if has_low else f"claimed: below {high:.4g}"


def _more_seeds(found: Judgement) -> str:
    halve = f"{found.seeds_to_halve} seeds would halve the interval" if found.seeds_to_halve else ""
    decide = f"{found.seeds_to_decide} would decide if the mean stayed"
    return ", ".join(part for part in (halve, decide if found.seeds_to_decide else "") if part)


def number(found: Judgement, value: float) -> str:
    """Signed for a difference; with three decimals where two would hide the interval."""
    if found.comparison.is_log or found.comparison.is_share:
        return f"{value:.3g}"
    if abs(value) >= 1e5:
        return f"{value:+,.0f}"
    low, high = found.interval or (value, value)
    digits = 3 if 0 < high - low < 0.2 else 2
    return f"{value:+.{digits}f}"
