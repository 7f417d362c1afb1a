"""A time limit for an analysis, shared out among its parts: each stops in time with what it has."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

KeepGoing = Callable[[], bool]  # asked before each piece of work; False: stop with what there is
OnProgress = Callable[[str, int, int | None], None]  # part, pieces begun, pieces in all if known


def unlimited() -> bool:
    """A `KeepGoing` without a limit."""
    return True


class TimeBudget:
    """Shares a number of minutes out among the parts of an analysis; None is no limit.

    truncated: the names of the parts that ran out of time.
    """

    def __init__(
        self,
        minutes: float | None,
        parts: int,
        on_progress: OnProgress,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._on_progress, self._clock, self._parts_left = on_progress, clock, parts
        self._end = math.inf if minutes is None else clock() + 60 * minutes
        self.truncated: list[str] = []

    def start_part(self, name: str, total: int | None = None, share: float = 0.0) -> KeepGoing:
        """Start the next part, and return the function it asks before each piece of its work.

        The remaining time is divided equally among the parts that are left. A part that is useless
        when truncated may ask for a larger share. total: pieces of work, for progress reports.
        """
        now, done = self._clock(), 0
        time_left = max(0.0, self._end - now)
        until = now + time_left * max(share, 1 / max(1, self._parts_left))
        self._parts_left -= 1

        def keep_going() -> bool:
            nonlocal done
            if self._clock() > until:
                if name not in self.truncated:
                    self.truncated.append(name)
                return False
            done += 1
            self._on_progress(name, done, total)
            return True

        return keep_going
