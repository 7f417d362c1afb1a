"""Measured cost on this machine: seconds per step on one thread, compared with FedAvg, and the peak
memory of a step's tensors."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

import torch
from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.job import Job
from fedloom.core.key import Key
from fedloom.core.method import Method
from fedloom.core.optimisers import SGDRule
from fedloom.core.solver import DescentResult, Objective, Sgd, Solver
from fedloom.core.step import Step
from fedloom.diagnostics.cost.dispatch import MemoryTracker
from fedloom.diagnostics.cost.toy_federation import Workload, collecting, run_two_rounds

REPETITIONS = 2  # of FedAvg and the method in turns, so that a busy machine slows both


@dataclass(frozen=True)
class Measurement:
    """seconds: median per step. ratio: to FedAvg's with SGD. peak: bytes of tensors alive at once.

    The peak is of local training. It includes weights, gradients, activations, teachers, the state
    of the optimiser and the batch, but not buffers inside kernels, nor Python.
    """

    seconds: float
    ratio: float
    peak: int


def measure(workload: Workload, steps: int = 5) -> Measurement:
    """Time steps of the method and of FedAvg in turns, on the CPU, at the workload's batch size."""
    fedavg = replace(workload, method=Method("fedavg"), rule=SGDRule())
    fedavg_times: list[list[float]] = []
    method_times: list[list[float]] = []
    for _ in range(REPETITIONS):
        fedavg_times.append(_seconds_per_phase(fedavg, steps))
        method_times.append(_seconds_per_phase(workload, steps))
    seconds = _seconds_per_step(method_times)
    solvers: list[MemorySolver] = []
    run_two_rounds(workload, torch.device("cpu"), collecting(solvers, MemorySolver))
    peak = max(solver.peak for solver in solvers)
    return Measurement(seconds, seconds / _seconds_per_step(fedavg_times), peak)


def _seconds_per_step(repetitions: list[list[float]]) -> float:
    """The median over repetitions of each phase, summed over the phases."""
    total = sum(median(times) for times in zip(*repetitions, strict=True))
    return float(total)


def _seconds_per_phase(workload: Workload, steps: int) -> list[float]:
    """For each phase the median over its steps."""
    solvers: list[TimingSolver] = []
    observe = collecting(solvers, lambda solver: TimingSolver(solver, steps))
    run_two_rounds(workload, torch.device("cpu"), observe)
    return [
        median(later - earlier for earlier, later in pairwise(solver.starts)) for solver in solvers
    ]


class TimingSolver:
    """Records when each step of the second round first evaluates its objective."""

    def __init__(self, solver: Solver, steps: int) -> None:
        self._solver = solver
        self._steps = steps
        self.starts: list[float] = []

    def __call__(self, model: Chain, objective: Objective, job: Job, key: Key) -> DescentResult:
        if not job.round:
            return self._solver(model, objective, job, key)
        started: set[int] = set()

        def loss(step: Step) -> Tensor:
            if step.number not in started:
                started.add(step.number)
                self.starts.append(time.perf_counter())
            return objective.loss(step)

        solver = self._solver
        if isinstance(solver, Sgd):  # a duration needs the start of the next step
            solver = replace(solver, steps=self._steps + 1)
        return solver(model, replace(objective, loss=loss), job, key)


class MemorySolver:
    """Records the peak memory of the tensors of the second round."""

    def __init__(self, solver: Solver) -> None:
        self._solver = solver
        self.peak = 0

    def __call__(self, model: Chain, objective: Objective, job: Job, key: Key) -> DescentResult:
        tracker = MemoryTracker()
        with tracker:
            result = self._solver(model, objective, job, key)
        if job.round:
            self.peak = tracker.peak + sum(t.untyped_storage().nbytes() for t in tracker.inputs)
        return result
