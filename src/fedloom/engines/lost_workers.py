"""When a worker counts as lost, and when the client that it ran is given up; for pool and Ray.

A worker is lost if it dies or hangs. Its client runs again on another one, with the same result,
unless it has cost too many workers in this round: then it is absent.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable

from fedloom.core.server import Absent
from fedloom.engines.inprocess import late

MAX_DEATHS = 3  # workers that one client may kill in a round
MAX_TIMEOUTS = 2  # workers in which one client may hang in a round
STARTUP_SECONDS = 120.0  # within which a worker has to be ready
# A worker interrupts a client that has used up its time; one that does not manage to is replaced.
TIMEOUT_GRACE = 0.5  # seconds


class LostWorkers:
    """The workers that each client has cost in a round.

    timeout: seconds that a client may take; None: no limit.
    """

    def __init__(self, timeout: float | None) -> None:
        self.timeout = timeout
        self.deaths, self.timeouts = Counter[int](), Counter[int]()

    def after_death(self, client: int, how: str) -> Absent | None:
        """Count a worker that died; the answer of its client, or None if it is to run again.

        how: what is known about the death.
        """
        self.deaths[client] += 1
        if self.deaths[client] < MAX_DEATHS:
            return None
        return Absent(
            client,
            f"it killed {MAX_DEATHS} workers ({how}); there may be too little memory: "
            "use fewer workers (--workers) or a smaller batch",
        )

    def after_timeout(self, client: int) -> Absent | None:
        """Count a worker that hung; the answer of its client, or None if it is to run again."""
        self.timeouts[client] += 1
        return late(client, self.timeout) if self.timeouts[client] >= MAX_TIMEOUTS else None


def hangs_after(since: float, is_ready: bool, timeout: float | None) -> float:
    """When a worker is considered to hang, on the clock of `time.monotonic`.

    since: when it began with its client or, if it is not ready, to get ready.
    """
    if not is_ready:
        return since + STARTUP_SECONDS
    return math.inf if timeout is None else since + timeout + TIMEOUT_GRACE


def seconds_until_first(deadlines: Iterable[float]) -> float | None:
    """How long to wait until the first of these times has come; None: it never comes."""
    first = min(deadlines)
    return None if math.isinf(first) else max(0.0, first - time.monotonic())
