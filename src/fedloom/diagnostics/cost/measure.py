"""What a step takes on this machine: seconds on one thread beside those of FedAvg, and the most memory that its tensors fill."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from statistics import median

import torch
from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.job import Job
from fedloom.core.key import Key
from fedloom.core.method import Method
from fedloom.core.solver import DescentResult, Objective, Sgd, Solver
from fedloom.core.step import Step
from fedloom.diagnostics.cost.dispatch import Footprint
from fedloom.diagnostics.cost.toy_federation import Scene, noted, play

TURNS = 2  # of the method and of FedAvg, one after the other, so that a busy machine slows both


@dataclass(frozen=True)
class Measured:
    """seconds: median of a step. ratio: to a step of FedAvg. peak: bytes of tensors alive at once in local training.

    In the peak are weights, gradients, activations, teachers and the batch; not in it are buffers inside kernels, and Python.
    """

    seconds: float
    ratio: float
    peak: int


def measure(scene: Scene, steps: int = 5) -> Measured:
    """Steps of the method and of FedAvg in turns, on the CPU, at the batch size of the scene."""
    taken: dict[bool, list[list[float]]] = {True: [], False: []}
    for _ in range(TURNS):
        for plain in (True, False):
            turn = replace(scene, method=Method("fedavg")) if plain else scene
            taken[plain].append(_timed(turn, steps))
    ours, base = (
        sum(median(times) for times in zip(*taken[plain], strict=True)) for plain in (False, True)
    )
    scales: list[Scales] = []
    play(scene, torch.device("cpu"), noted(scales, Scales))
    return Measured(ours, ours / base, max(s.peak for s in scales))


def _timed(scene: Scene, steps: int) -> list[float]:
    """Of each phase, the median over its steps."""
    clocks: list[Clock] = []
    play(scene, torch.device("cpu"), noted(clocks, lambda solver: Clock(solver, steps)))
    return [
        median(later - earlier for earlier, later in zip(c.starts, c.starts[1:], strict=False))
        for c in clocks
    ]


class Clock:
    """A solver that notes when each step of the second round asks for its objective for the first time."""

    def __init__(self, solver: Solver, steps: int) -> None:
        self._solver = solver
        self._steps = steps
        self.starts: list[float] = []

    def __call__(self, model: Chain, objective: Objective, job: Job, key: Key) -> DescentResult:
        if not job.round:
            return self._solver(model, objective, job, key)
        seen: set[int] = set()

        def loss(step: Step) -> Tensor:
            if step.number not in seen:
                seen.add(step.number)
                self.starts.append(time.perf_counter())
            return objective.loss(step)

        more = (
            replace(self._solver, steps=self._steps + 1)
            if isinstance(self._solver, Sgd)
            else self._solver
        )
        return more(model, replace(objective, loss=loss), job, key)


class Scales:
    """A solver that weighs the tensors of the second round."""

    def __init__(self, solver: Solver) -> None:
        self._solver = solver
        self.peak = 0

    def __call__(self, model: Chain, objective: Objective, job: Job, key: Key) -> DescentResult:
        footprint = Footprint()
        with footprint:
            trace = self._solver(model, objective, job, key)
        if job.round:
            self.peak = footprint.peak + sum(t.untyped_storage().nbytes() for t in footprint.held)
        return trace
