"""A judgement in words."""

from __future__ import annotations

import math

from fedloom.claims.comparison import Comparison
from fedloom.claims.judgement import Judgement
from fedloom.claims.statistics import MOST_SEEDS


def describe(found: Judgement) -> str:
    """A judgement in words: what was compared, the interval, what was asked, the seeds needed."""
    parts = [_measured(found), f"asked: {asked(found.comparison)}", what_would_decide(found)]
    return "; ".join(part for part in parts if part)


def _measured(found: Judgement) -> str:
    label, times = found.comparison.label, repetitions(found)
    if found.mean is None:
        return f"{label}, {times}"
    if found.interval is None:
        return f"{label} {number(found, found.mean)}, {times}"
    low, high = (number(found, end) for end in found.interval)
    if found.is_counted:
        return f"{label} {low}, counted"
    interval = f"[{low}, {high}]"
    return f"{label} {number(found, found.mean)} {interval}, {found.level:.0%}, {times}"


def repetitions(found: Judgement) -> str:
    """How many seeds, or turns of a timing, were compared."""
    return f"{found.seeds} {found.comparison.unit}{'' if found.seeds == 1 else 's'}"


def asked(comparison: Comparison) -> str:
    """Where the difference must lie for the claim to agree, in words."""
    low, high = comparison.region.low, comparison.region.high
    if comparison.is_log:
        low, high = math.exp(low), math.exp(high)
    has_low = math.isfinite(low) and not (comparison.is_log and low == 0)
    if has_low and math.isfinite(high):
        ends = dict.fromkeys((f"{low:.4g}", f"{high:.4g}"))
        return " to ".join(ends)  # one number, if that is all that is allowed
    return f"above {low:.4g}" if has_low else f"below {high:.4g}"


def what_would_decide(found: Judgement) -> str:
    """Why nothing is decided, or how many seeds would decide; empty if something is decided."""
    if found.outcome != "not decided" or found.reason:
        return found.reason
    if found.is_extended:
        return "already extended; a new suite would be needed"
    return f"{seeds_in_words(found.seeds_to_decide)} {found.comparison.unit}s would decide"


def seeds_in_words(count: int | None) -> str:
    """A number of seeds that would decide; None is more than are worth naming."""
    return f"more than {MOST_SEEDS}" if count is None else str(count)


def number(found: Judgement, value: float) -> str:
    """Signed for a difference; with three decimals where two would hide the interval."""
    if found.comparison.is_log or found.comparison.is_share:
        return f"{value:.3g}"
    if abs(value) >= 1e5:
        return f"{value:+,.0f}"
    low, high = found.interval or (value, value)
    digits = 3 if 0 < high - low < 0.2 else 2
    return f"{value:+.{digits}f}"
