"""A kill -9 at every durable step of a run, of a resume and of a fall back, one after the other.

Every step is enumerated: the process is killed before it, and for a write also halfway through.
Then the user resumes, or starts again if there is no run yet. The result must be that of a run
which nobody disturbed, and no round that was reported as done may be run a second time.
"""

from __future__ import annotations

import functools
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trust import small_run
from trust.disk import Step, watched
from trust.outcomes import WRONG, Outcomes, judged
from trust.small_run import copied


@dataclass(frozen=True)
class Scenario:
    """What is killed. prepare: makes the folder in which it happens."""

    name: str
    prepare: Callable[[Path], object]
    done: int  # rounds that are safe before it begins


def _fallen(path: Path) -> Path:
    """A run whose last checkpoint is damaged."""
    small_run.stopped(path, after=3)
    (path / "checkpoint/round-3.safetensors").write_bytes(b"damaged")
    return path


SCENARIOS = (
    Scenario("run", lambda path: None, 0),
    Scenario("resume", lambda path: small_run.stopped(path, after=3), 3),
    Scenario("fall back", _fallen, 2),
)


def prepared(scenarios: Sequence[Scenario]) -> Iterator[tuple[Scenario, Path, Path]]:
    """Each scenario with the folder that holds its run, and a folder to work in."""
    small_run.reference()
    with small_run.workshop() as shop:
        for scenario in scenarios:
            base = shop / "base" / scenario.name
            base.mkdir(parents=True)
            scenario.prepare(base / "run")
            yield scenario, base, shop


def attack(share: float = 1.0, scenarios: Sequence[Scenario] = SCENARIOS) -> Outcomes:
    """Kill at every step, or at an evenly spaced share of them."""
    outcomes: Outcomes = Counter()
    for scenario, base, shop in prepared(scenarios):
        for at, half in _moments(base, shop, share):
            place = copied(base, shop / "place")
            reported = killed(place / "run", at, half)
            safe = max([scenario.done, *reported])
            name = f"kill {'in' if half else 'before'} step {at} of {scenario.name}"
            outcomes[judged(name, functools.partial(_resumed, place / "run", safe))] += 1
    return outcomes


def _moments(base: Path, shop: Path, share: float) -> Iterator[tuple[int, bool]]:
    """The number of each step, and whether the kill comes halfway through it."""
    steps: list[Step] = []
    place = copied(base, shop / "place")
    with watched(place, lambda step: steps.append(step) if step.kind != "read" else None):
        small_run.go_on(place / "run")
    moments = [(n, False) for n in range(1, len(steps) + 1)]
    moments += [(n, True) for n, step in enumerate(steps, 1) if step.kind == "write"]
    count = max(1, round(share * len(moments)))
    yield from (moments[k * len(moments) // count] for k in range(count))


def killed(run: Path, at: int, half: bool) -> list[int]:
    """Resume or start in a process that is killed at a step; the rounds that it reported."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with watched(run.parent, _Bomb(at, half)):
                small_run.go_on(run, lambda round: os.write(theirs, bytes([round])) and None)
        finally:
            os._exit(1)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        reported = list(pipe.read())
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == -signal.SIGKILL, f"the run ended before step {at}, with {status}"
    return reported


class _Bomb:
    """Kills this process at one of its steps."""

    def __init__(self, at: int, half: bool) -> None:
        self.left, self.half = at, half

    def __call__(self, step: Step) -> None:
        if step.kind == "read":
            return
        self.left -= 1
        if self.left == 0:
            if self.half and step.half is not None:
                step.half()
            os.kill(os.getpid(), signal.SIGKILL)


def _resumed(run: Path, safe: int) -> str:
    rounds: list[int] = []
    outcome = small_run.resume(run, rounds.append)
    if rounds and rounds[0] <= safe:
        return WRONG  # a reported round was lost
    return outcome
