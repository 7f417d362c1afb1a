"""The clock of a contestant: it ticks after every round and stops the run after enough rounds."""

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
    """Raised when enough rounds have been timed."""


class Clock:
    """The first tick starts the clock, every further one ends a round.

    The first `warm_up` rounds are not timed. After at least `min_rounds` timed rounds that took at
    least `min_seconds` together, the result is written to `path` and the run is stopped.
    """

    def __init__(self, path: Path, warm_up: int, min_rounds: int, min_seconds: float) -> None:
        self.path, self.warm_up = path, warm_up
        self.min_rounds, self.min_seconds = min_rounds, min_seconds
        self.stamps: list[float] = []
        self.cpu_at_start = 0.0

    def tick(self) -> None:
        self.stamps.append(time.monotonic())
        timed = self.stamps[self.warm_up :]
        if len(timed) == 1:
            self.cpu_at_start = cpu_seconds()
            self.stamps[-1] = time.monotonic()  # reading the CPU time took time, too
        elif len(timed) > self.min_rounds and timed[-1] - timed[0] >= self.min_seconds:
            self._write(timed)
            raise Enough

    def _write(self, timed: list[float]) -> None:
        rounds = [end - start for start, end in itertools.pairwise(timed)]
        result = {
            "rounds": rounds,
            "cpu_seconds": (cpu_seconds() - self.cpu_at_start) / len(rounds),
            "memory_mib": memory(family(os.getpid())),
        }
        self.path.write_text(json.dumps(result))


def cpu_seconds() -> float:
    """CPU time of this process and its descendants, including those that have ended."""
    times = os.times()
    return cpu(family(os.getpid())) + times.children_user + times.children_system


def contest(run: Callable[[str, str, Clock], None]) -> None:
    """Call `run(work, way, clock)` until the clock stops it.

    The command's arguments are WORK WAY RESULT WARM_UP MIN_ROUNDS MIN_SECONDS.
    """
    work, way, result, warm_up, min_rounds, min_seconds = sys.argv[1:]
    clock = Clock(Path(result), int(warm_up), int(min_rounds), float(min_seconds))
    with suppress(Enough):
        run(work, way, clock)
