"""A solver that counts what its steps compute and what they read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.job import Job
from fedloom.core.key import Key
from fedloom.core.solver import DescentResult, Objective, Solver
from fedloom.core.step import Loss, Step
from fedloom.diagnostics.cost.dispatch import MacCounter, MemoryTracker
from fedloom.diagnostics.cost.latin_hypercube import LatinHypercube, mean_and_error
from fedloom.diagnostics.cost.toy_federation import RecordingModelPool

CUBES = 4  # hypercubes among which the draws are divided; the spread of their means is the error


class ForwardMacs(NamedTuple):
    """MACs of one evaluation of an objective: all, and those of layers."""

    total: float
    layers: float


class CountingSolver:
    """Runs a solver and counts its steps in the second round.

    By then the method has its memories, and everything that it makes only once is made.
    forward, layers, training: MACs per step (see MacCounter; training is forward and backward).
    error: standard error of `forward`, relative to it. extra_parameters: numbers that the objective
    reads besides the trained model.
    """

    def __init__(self, solver: Solver, counter: MacCounter, draws: int) -> None:
        self._solver = solver
        self._counter = counter
        self._cube_size = max(draws // CUBES, 1)
        self._sampler = LatinHypercube(Key.root(0).fold("draws"), self._cube_size)
        self._new_step: Callable[[], Step]
        self.forward = self.layers = self.training = self.error = 0.0
        self.extra_parameters = 0

    def __call__(self, model: Chain, objective: Objective, job: Job, key: Key) -> DescentResult:
        evaluations: list[ForwardMacs] = []

        def loss(step: Step) -> Tensor:
            # a copy of the step in which nothing has been computed yet
            self._new_step = partial(
                Step, step.x, step.y, model, job, step.params, key, step.number
            )
            value, macs = self._counted(objective.loss, step, draw=0)
            evaluations.append(macs)
            return value

        before = self._counter.macs
        result = self._solver(model, replace(objective, loss=loss), job, key)
        self._set_means(evaluations, self._counter.macs - before, result.steps)
        if job.round:
            if self._sampler.drawn:
                self._average_over_draws(objective.loss)
            self.extra_parameters = _extra_parameters(objective.loss, self._new_step())
        return result

    def _counted(self, loss: Loss, step: Step, draw: int) -> tuple[Tensor, ForwardMacs]:
        """The objective of a step and its MACs; random choices depend on `draw` alone."""
        self._sampler.start_step(draw)
        total, layers = self._counter.forward, self._counter.layers
        self._counter.sampler = self._sampler
        value = loss(step)
        self._counter.sampler = None
        return value, ForwardMacs(self._counter.forward - total, self._counter.layers - layers)

    def _set_means(self, evaluations: Sequence[ForwardMacs], macs: float, steps: int) -> None:
        self.forward, self.layers = (sum(parts) / steps for parts in zip(*evaluations, strict=True))
        self.training = macs / steps

    def _average_over_draws(self, loss: Loss) -> None:
        """Replace the cost of one draw by the mean over many."""
        samples = [self._macs_of_draw(loss, draw) for draw in range(CUBES * self._cube_size)]
        # How often a step evaluates the objective: the counted steps all used draw 0.
        evaluations = self.forward / samples[0].total
        forward, error = mean_and_error([s.total for s in samples], self._cube_size)
        layers, _ = mean_and_error([s.layers for s in samples], self._cube_size)
        # The whole step is assumed to scale as its layers do.
        if self.layers:
            self.training *= evaluations * layers / self.layers
        else:
            self.training *= evaluations * forward / self.forward
        self.forward, self.layers = evaluations * forward, evaluations * layers
        self.error = error / forward

    def _macs_of_draw(self, loss: Loss, draw: int) -> ForwardMacs:
        """The MACs of the objective with this draw, without work done only the first time."""
        self._counter.new_layer = False
        _, macs = self._counted(loss, self._new_step(), draw)
        if self._counter.new_layer:  # for example a sub-network was made: count again without that
            _, macs = self._counted(loss, self._new_step(), draw)
        return macs


def _extra_parameters(loss: Loss, step: Step) -> int:
    """The numbers that a client stores besides the trained model.

    These are the weights of teachers, and the tensors that the objective reads which belong neither
    to a model nor to the batch.
    """
    pool = step.job.model_pool
    assert isinstance(pool, RecordingModelPool)
    tracker = MemoryTracker()
    with tracker:
        loss(step)
    models = list(pool.loaded.values())
    ignored = {_storage_id(t) for t in (step.x, step.y, *_tensors(models))}
    other = [t for t in tracker.inputs if _is_stored(t) and _storage_id(t) not in ignored]
    teachers = [model for model in models if model is not step.model]
    weights = [p for teacher in teachers for p in teacher.parameters()]
    return sum(t.numel() for t in (*other, *weights))


def _tensors(models: Sequence[Chain]) -> Iterator[Tensor]:
    """The parameters and buffers of the models."""
    for model in models:
        yield from model.parameters()
        yield from model.buffers()


def _is_stored(t: Tensor) -> bool:
    """Scalars and integer tensors are not counted."""
    return bool(t.dim()) and t.is_floating_point()


def _storage_id(t: Tensor) -> int:
    """Identifies a tensor's storage, also on the meta device; views share it."""
    return int(t.untyped_storage()._cdata)
