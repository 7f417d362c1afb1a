"""Time for an analysis: each part gets a share of what is left, and stops in time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

Go = Callable[[], bool]  # asked before each piece of work; False: end with what there is
Watch = Callable[[str, int, int | None], None]  # the part, pieces begun, pieces in all if known


def always() -> bool:
    """No limit."""
    return True


class Pace:
    """Deals out the time. `cut` names the parts that ran out of it."""

    def __init__(
        self,
        minutes: float | None,
        parts: int,
        watch: Watch,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._watch, self._clock, self._parts = watch, clock, parts
        self._end = math.inf if minutes is None else clock() + 60 * minutes
        self.cut: list[str] = []

    def part(self, name: str, total: int | None = None, share: float = 0.0) -> Go:
        """Begin the next part; what it asks before each of its pieces.

        The parts still to come have equal shares. One that is worth nothing when it is cut may ask for a larger one.
        """
        now, done = self._clock(), 0
        until = now + max(0.0, self._end - now) * max(share, 1 / max(1, self._parts))
        self._parts -= 1

        def go() -> bool:
            nonlocal done
            if self._clock() > until:
                self.cut += [name] if name not in self.cut else []
                return False
            done += 1
            self._watch(name, done, total)
            return True

        return go
