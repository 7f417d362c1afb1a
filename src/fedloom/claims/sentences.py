"""A judgement in words."""

from __future__ import annotations

import math

from fedloom.claims.comparison import Comparison
from fedloom.claims.judgement import Judgement


def describe(found: Judgement) -> str:
    """A judgement in words: what was compared, the interval, the region, the seeds needed."""
    parts = [_measured(found), _wanted(found.comparison)]
    if found.reason:
        parts.append(found.reason)
    elif found.outcome == "not decided":
        parts.append(_more_seeds(found))
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


def _wanted(comparison: Comparison) -> str:
    low, high = comparison.region.low, comparison.region.high
    if comparison.is_log:
        low, high = math.exp(low), math.exp(high)
    has_low = math.isfinite(low) and not (comparison.is_log and low == 0)
    if has_low and math.isfinite(high):
        return f"claimed: {low:.4g} to {high:.4g}"
    return f"claimed: above {low:.4g}" if has_low else f"claimed: below {high:.4g}"


def _more_seeds(found: Judgement) -> str:
    halve = (
        f"{found.seeds_to_halve} {found.comparison.unit}s would halve the interval"
        if found.seeds_to_halve
        else ""
    )
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
