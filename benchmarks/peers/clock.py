"""The clock that a contestant holds: it ticks when a round ends, and is told when there have been enough."""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from benchmarks.measure import cpu, family, memory


class Enough(Exception):
    """No more rounds are wanted."""


class Clock:
    """The first tick starts it, every further one ends a round; the first `warm` rounds are not timed.

    There have been enough when `least` rounds and `seconds` of them are timed; then the result is written to `path`.
    """

    def __init__(self, path: Path, warm: int, least: int, seconds: float) -> None:
        self.path, self.warm, self.least, self.seconds = path, warm, least, seconds
        self.stamps: list[float] = []
        self.computed = 0.0

    def tick(self) -> None:
        self.stamps.append(time.monotonic())
        timed = self.stamps[self.warm :]
        if len(timed) == 1:
            self.computed = computed()
            self.stamps[-1] = time.monotonic()  # looking took time, too
        elif len(timed) > self.least and timed[-1] - timed[0] >= self.seconds:
            self._write(timed)
            raise Enough

    def _write(self, timed: list[float]) -> None:
        rounds = [end - start for start, end in itertools.pairwise(timed)]
        a_round = (computed() - self.computed) / len(rounds)
        found = {
            "rounds": rounds,
            "cpu_seconds": a_round,
            "memory_mib": memory(family(os.getpid())),
        }
        self.path.write_text(json.dumps(found))


def computed() -> float:
    """Processor time of this process and its descendants, those included that have ended."""
    ended = os.times()
    return cpu(family(os.getpid())) + ended.children_user + ended.children_system


def contest(play: Callable[[str, str, Clock], None]) -> None:
    """Let `play(work, way, clock)` play until the clock has seen enough: WORK WAY RESULT WARM LEAST SECONDS."""
    work, way, result, warm, least, seconds = sys.argv[1:]
    with suppress(Enough):
        play(work, way, Clock(Path(result), int(warm), int(least), float(seconds)))
