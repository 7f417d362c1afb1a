"""One cell of a table: does its row differ from the baseline in the direction that is printed?

This is no verdict on a claim: it asks for the sign alone, and is not corrected for many cells.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedloom.claims.sentences import seeds_in_words
from fedloom.claims.statistics import LEVEL_AFTER_EXTENSION, Estimate, estimate, seeds_to_decide
from fedloom.claims.suites import rule
from fedloom.settings.paper_table import Printed


def sign_check(
    differences: Sequence[float],
    printed: Printed | None,
    baseline: Printed | None,
    fair: bool | None,
    extended: bool = False,
) -> str:
    """Agrees, differs or not decided, in words; "-" where the paper prints no difference.

    differences: of the row and the baseline by seed, or their log ratios. fair: whether the gate of
    the suite is met; None if that is not known. extended: after the one extension to more seeds.
    """
    if not has_printed_difference(printed, baseline) or not differences:
        return "-"
    assert printed is not None and baseline is not None  # they differ
    outcome = _outcome(differences, (printed.gain(baseline) or 0.0) > 0, extended)
    if fair is None:
        return f"{outcome} (gate not known)"
    return outcome if fair else f"{outcome} (not a fair test)"


def has_printed_difference(printed: Printed | None, baseline: Printed | None) -> bool:
    """Whether the paper prints two numbers that differ."""
    return printed is not None and baseline is not None and bool(printed.gain(baseline))


def _outcome(differences: Sequence[float], is_printed_above: bool, extended: bool) -> str:
    found = estimate(differences)
    if found is None or found.seeds < rule().minimum_seeds:
        return f"not decided (needs {rule().minimum_seeds} seeds or more)"
    if found.has_no_spread:
        return "not decided (the same on every seed)"
    low, high = found.interval(rule().extended_confidence if extended else rule().confidence)
    if low <= 0 <= high:
        return _not_decided(found, extended)
    return "agrees" if (low > 0) == is_printed_above else "differs"


def _not_decided(found: Estimate, extended: bool) -> str:
    if extended:
        return "not decided"
    needed = seeds_to_decide(found, 0.0, LEVEL_AFTER_EXTENSION)
    return f"not decided ({seeds_in_words(needed)} seeds would decide)"
