"""A solver that keeps account of what its steps compute and read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.job import Job
from fedloom.core.key import Key
from fedloom.core.solver import DescentResult, Objective, Solver
from fedloom.core.step import Loss, Step
from fedloom.diagnostics.cost.dispatch import Footprint, Hypercube, Meter, mean_and_error
from fedloom.diagnostics.cost.toy_federation import Shelf

CUBES = 4  # hypercubes that the draws are shared among, so that their means show an error


class Forward(NamedTuple):
    """MACs of an objective going forward: all, and those of layers."""

    macs: float
    layers: float


class Book:
    """Lets a solver run and accounts for the second round, when the method has its memories and what it makes once is made.

    forward, layers, training: MACs of a step. error: of forward, as a share of it. beside: numbers read beside the model's own.
    """

    def __init__(self, solver: Solver, meter: Meter, draws: int) -> None:
        self._solver = solver
        self._meter = meter
        self._size = max(draws // CUBES, 1)
        self._cube = Hypercube(Key.root(0).fold("draws"), self._size)
        self._again: Callable[[], Step]
        self.forward = self.layers = self.training = self.error = 0.0
        self.beside = 0

    def __call__(self, model: Chain, objective: Objective, job: Job, key: Key) -> DescentResult:
        booked: list[Forward] = []

        def loss(step: Step) -> Tensor:
            self._again = partial(
                Step, step.x, step.y, model, job, step.params, key, step.number
            )  # nothing computed yet
            value, forward = self._watched(objective.loss, step, draw=0)
            booked.append(forward)
            return value

        before = self._meter.macs
        trace = self._solver(model, replace(objective, loss=loss), job, key)
        self._enter(booked, self._meter.macs - before, trace.steps)
        if job.round:
            if self._cube.drawn:
                self._average(objective.loss)
            self.beside = _beside(objective.loss, self._again())
        return trace

    def _watched(self, loss: Loss, step: Step, draw: int) -> tuple[Tensor, Forward]:
        """The objective of a step and its work; the draws are the same whenever `draw` is."""
        self._cube.turn_to(draw)
        macs, layers = self._meter.forward, self._meter.layers
        self._meter.cube = self._cube
        value = loss(step)
        self._meter.cube = None
        return value, Forward(self._meter.forward - macs, self._meter.layers - layers)

    def _enter(self, booked: Sequence[Forward], macs: float, steps: int) -> None:
        self.forward, self.layers = (sum(parts) / steps for parts in zip(*booked, strict=True))
        self.training = macs / steps

    def _average(self, loss: Loss) -> None:
        """Replace what one draw costs by the mean over many; what a draw prepares for its kind is not part of it."""
        found = []
        for draw in range(CUBES * self._size):
            self._meter.fresh = False
            _, work = self._watched(loss, self._again(), draw)
            if self._meter.fresh:
                _, work = self._watched(loss, self._again(), draw)
            found.append(work)
        passes = (
            self.forward / found[0].macs
        )  # how often a step asks for the objective: the first draw is that of the whole steps
        forward, error = mean_and_error([f.macs for f in found], self._size)
        layers, _ = mean_and_error([f.layers for f in found], self._size)
        self.training *= (
            passes * layers / self.layers if self.layers else passes * forward / self.forward
        )
        self.forward, self.layers, self.error = passes * forward, passes * layers, error / forward


def _beside(loss: Loss, step: Step) -> int:
    """The weights kept beside the model: those of teachers, and what the objective reads that is no model's, nor the batch."""
    assert isinstance(step.job.model_pool, Shelf)
    footprint = Footprint()
    with footprint:
        loss(step)
    models = step.job.model_pool.loaded.values()
    known = {_place(t) for m in models for t in (*m.parameters(), *m.buffers())} | {
        _place(step.x),
        _place(step.y),
    }
    other = [
        t for t in footprint.held if t.dim() and t.is_floating_point() and _place(t) not in known
    ]
    return sum(t.numel() for t in other) + sum(
        p.numel() for m in models if m is not step.model for p in m.parameters()
    )


def _place(t: Tensor) -> int:
    """Where a tensor's numbers lie, or would; views share it."""
    return int(t.untyped_storage()._cdata)
