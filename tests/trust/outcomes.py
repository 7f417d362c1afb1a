"""What may become of a run that was attacked, and how an attempt to use it is judged."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable

from fedloom.core.errors import RunError, UserError

IDENTICAL = "identical"  # the result is that of a run nobody touched
FELL_BACK = "fell back"  # the same result, from an earlier checkpoint, with a warning
REJECTED = "rejected"  # one of our errors
ACCEPTED = "accepted"  # input that turned out to be valid, and was used as it says
FORGED = "forged consistently"  # everything fits together: see trust/manifests.py
TRACEBACK = "traceback"
WRONG = "silently wrong"

OUTCOMES = (IDENTICAL, FELL_BACK, REJECTED, ACCEPTED, FORGED, TRACEBACK, WRONG)
FAILURES = (TRACEBACK, WRONG)

Outcomes = Counter[str]


def judged(name: str, attempt: Callable[[], str]) -> str:
    """The outcome of an attempt, which names it or raises. Failures are printed with their case."""
    try:
        outcome = attempt()
    except (RunError, UserError) as error:
        if not str(error).strip():
            _show(name, f"an error without a message: {error!r}")
            return TRACEBACK
        if os.environ.get("TRUST_SHOW"):
            _show(name, str(error))
        return REJECTED
    except Exception as error:
        _show(name, f"{type(error).__name__}: {error}")
        return TRACEBACK
    if outcome in FAILURES:
        _show(name, outcome)
    return outcome


def _show(name: str, what: str) -> None:
    print(f"    {name}: {what}"[:400], flush=True)
