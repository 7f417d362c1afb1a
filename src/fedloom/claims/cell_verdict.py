"""The verdict on one cell of a table: is the row above or below the first one, as in the paper?"""

from __future__ import annotations

from collections.abc import Mapping

from fedloom.claims.statistics import differences, estimate, seeds_to_decide
from fedloom.claims.suites import rule
from fedloom.settings.paper_table import Printed


def cell_verdict(
    ours: Mapping[int, float],
    theirs: Mapping[int, float],
    printed: Printed | None,
    baseline: Printed | None,
    fair: bool | None,
    confidence: float | None = None,
) -> str:
    """The verdict in words; "-" where the paper prints no difference.

    ours, theirs: the figures of the row and of the first row by seed. fair: whether the gate of the
    suite is met; None if that is not known. confidence: of the interval, by default the rule's.
    """
    gain = None if printed is None or baseline is None else printed.gain(baseline)
    gains = list(differences(ours, theirs).values())
    if not gain or not gains or ours == theirs:
        return "-"
    outcome = _outcome(gains, gain, confidence or rule().confidence)
    if fair is None:
        return f"{outcome} (gate not known)"
    return outcome if fair else f"{outcome} (not a fair test)"


def _outcome(gains: list[float], printed_gain: float, confidence: float) -> str:
    found = estimate(gains)
    if found is None or len(gains) < rule().minimum_seeds:
        return f"not decided (needs {rule().minimum_seeds} seeds or more)"
    low, high = found.interval(confidence)
    if low <= 0 <= high:
        needed = seeds_to_decide(found, 0.0, confidence)
        return "not decided" if needed is None else f"not decided ({needed} seeds would)"
    return "agrees" if (low > 0) == (printed_gain > 0) else "differs"
