"""A broken disk at every step of a run, of a resume and of a fall back: full, read-only, failing.

A full or read-only disk stays so, an input/output error happens once. The command must end with one
of our errors, or go on and be right. Once the disk works again, the run must resume and be right.
"""

from __future__ import annotations

import errno
import functools
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from trust import small_run
from trust.disk import Step, watched
from trust.kills import SCENARIOS, Scenario, prepared
from trust.outcomes import FAILURES, REJECTED, WRONG, Outcomes, judged
from trust.small_run import copied

LASTING = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
NUMBERS = (*LASTING, errno.EIO)


def attack(share: float = 1.0, scenarios: Sequence[Scenario] = SCENARIOS) -> Outcomes:
    """Each error at every step, or at an evenly spaced share of them."""
    outcomes: Outcomes = Counter()
    for scenario, base, shop in prepared(scenarios):
        for at, number in _moments(base, shop, share):
            place = copied(base, shop / "place")
            name = f"{errno.errorcode[number]} at step {at} of {scenario.name}"
            outcomes[_tried(name, place, at, number)] += 1
    return outcomes


def _moments(base: Path, shop: Path, share: float) -> Iterator[tuple[int, int]]:
    """The number of each step, with each error that can happen there."""
    steps: list[Step] = []
    place = copied(base, shop / "place")
    with watched(place, steps.append):
        small_run.go_on(place / "run")
    moments = [
        (at, number)
        for at, step in enumerate(steps, 1)
        for number in NUMBERS
        if step.kind != "read" or number == errno.EIO
    ]
    count = max(1, round(share * len(moments)))
    yield from (moments[k * len(moments) // count] for k in range(count))


def _tried(name: str, place: Path, at: int, number: int) -> str:
    """'rejected' if the command said what was wrong, and the run is right afterwards."""
    first = judged(name, functools.partial(_on_a_broken_disk, place, _Fault(at, number)))
    if first in FAILURES:
        return first
    after = judged(f"{name}, resumed", functools.partial(small_run.resume, place / "run"))
    if after == REJECTED:
        print(f"    {name}: the run does not resume although the disk works again")
        return WRONG
    return REJECTED if first == REJECTED and after not in FAILURES else after


def _on_a_broken_disk(place: Path, fault: _Fault) -> str:
    with watched(place, fault):
        ended = small_run.go_on(place / "run")
    return small_run.verdict(place / "run", ended)


class _Fault:
    """Raises an error at one of the steps, and at the later ones if it lasts."""

    def __init__(self, at: int, number: int) -> None:
        self.left, self.number = at, number

    def __call__(self, step: Step) -> None:
        self.left -= 1
        lasts = self.number in LASTING and step.kind != "read"
        if self.left == 0 or (lasts and self.left < 0 and _can_fail(step, self.number)):
            raise OSError(self.number, os.strerror(self.number), str(step.path))


def _can_fail(step: Step, number: int) -> bool:
    """A full disk still deletes and truncates."""
    return number == errno.EROFS or step.kind not in ("delete", "truncate")
