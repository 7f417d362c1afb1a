"""How one descends. `Sgd.__call__` holds the only loop over batches of the package; a rule says what a step does with a gradient.

A batch of one sample has no batch statistics: under batch norm a tail of one sample is left out, and a client with a single
sample makes no step; settings that would give such a client are refused when a run is assembled.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.job import Data, Job
from fedloom.core.key import Key
from fedloom.core.params import Params
from fedloom.core.step import Loss, Step

Order = Callable[[Data, torch.Generator], Tensor]  # the positions of one epoch
Mix = Callable[
    [Tensor, Tensor, Job, Key], tuple[Tensor, Tensor]
]  # what a batch becomes before the forward pass
Gradient = Callable[
    [int], list[Tensor]
]  # of the loss on the n-th batch of a step, at the weights as they are now


@dataclass(frozen=True)
class Objective:
    """What is to be descended: the loss, the order of the samples, what a batch becomes first, and where momentum is kept.

    clip: a bound on the norm of the gradient beside the solver's own; the tighter of the two holds.
    """

    loss: Loss
    order: Order
    mix: Mix | None = None
    memory: str = "solver"
    clip: float | None = None


@dataclass(frozen=True)
class DescentResult:
    """What a descent leaves behind: its size, its mean loss, further weights by slot, and memories to keep.

    seen: how many samples an epoch visits; with drop_last, fewer than there are. lr_sum: how far a gradient of 1 that never changed
    would have moved the weights; the sum of the learning rates, and more with momentum.
    """

    steps: int
    seen: int
    loss: float
    lr_sum: float
    slots: Mapping[str, Params] = field(default_factory=dict)
    keep: Mapping[str, Params] = field(default_factory=dict)

    def then(self, other: DescentResult) -> DescentResult:
        """This descent and another one behind it, as one."""
        steps = self.steps + other.steps
        loss = (self.steps * self.loss + other.steps * other.loss) / max(steps, 1)
        lr_sum, seen = self.lr_sum + other.lr_sum, max(self.seen, other.seen)
        return DescentResult(
            steps, seen, loss, lr_sum, {**self.slots, **other.slots}, {**self.keep, **other.keep}
        )


class Solver(Protocol):
    """Trains the open tensors of the model in place."""

    def __call__(self, model: Chain, objective: Objective, job: Job, key: Key) -> DescentResult: ...


Tuning = Callable[[Solver], Solver]  # what a phase makes of the run's solver


class Rule(Protocol):
    """One step: moves the weights in place, given the gradient of as many batches as it asks for."""

    @property
    def batches(self) -> int: ...

    def begin(self, weights: list[Tensor], memory: list[Tensor] | None) -> Any: ...

    def step(self, weights: list[Tensor], gradient: Gradient, lr: float, state: Any) -> Any: ...

    def end(
        self, names: list[str], state: Any
    ) -> tuple[Mapping[str, Params], list[Tensor] | None]: ...

    def effective_steps(
        self, steps: int
    ) -> float: ...  # of the lr_sum, in learning rates, from rest


@dataclass(frozen=True)
class SGDRule:
    """As torch.optim.SGD: g + weight_decay w; v = momentum v + g; w -= lr v (with Nesterov, lr (g + momentum v))."""

    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    batches: int = 1

    def begin(self, weights: list[Tensor], memory: list[Tensor] | None) -> list[Tensor] | None:
        return memory

    def step(
        self, weights: list[Tensor], gradient: Gradient, lr: float, state: list[Tensor] | None
    ) -> list[Tensor] | None:
        g = gradient(0)
        with torch.no_grad():
            if self.weight_decay:
                g = list(torch._foreach_add(g, weights, alpha=self.weight_decay))
            if self.momentum:
                state = self._velocity(g, state)
                g = (
                    list(torch._foreach_add(g, state, alpha=self.momentum))
                    if self.nesterov
                    else state
                )
            torch._foreach_add_(weights, g, alpha=-lr)
        return state

    def _velocity(self, g: list[Tensor], state: list[Tensor] | None) -> list[Tensor]:
        if state is None:
            return [t.clone() for t in g]
        torch._foreach_mul_(state, self.momentum)
        torch._foreach_add_(state, g)
        return state

    def end(
        self, names: list[str], state: list[Tensor] | None
    ) -> tuple[Mapping[str, Params], list[Tensor] | None]:
        return {}, state

    def effective_steps(self, steps: int) -> float:
        """
        >>> SGDRule().effective_steps(3), SGDRule(momentum=0.5).effective_steps(3)
        (3.0, 4.25)
        """
        moved = sum(
            itertools.accumulate(itertools.repeat(1.0, steps), lambda v, g: self.momentum * v + g)
        )
        return steps + self.momentum * moved if self.nesterov else moved


@dataclass(frozen=True)
class Schedule:
    """The learning rate of a round (counted from 0): lr times factor^(round // every), or half a cosine over `over` rounds."""

    kind: Literal["constant", "exponential", "step", "cosine"] = "constant"
    factor: float = 1.0
    every: int = 1
    over: int = 1

    def at(self, lr: float, round: int) -> float:
        """
        >>> Schedule("exponential", 0.998).at(0.1, 1)
        0.0998
        """
        match self.kind:
            case "constant":
                return lr
            case "cosine":
                return lr * 0.5 * (1 + math.cos(math.pi * min(round, self.over) / self.over))
            case "exponential":
                return lr * self.factor**round
            case "step":
                return lr * self.factor ** (round // self.every)


def shuffled(data: Data, generator: torch.Generator) -> Tensor:
    """Every sample once, in random order."""
    return torch.randperm(len(data), generator=generator)


@dataclass(frozen=True)
class Sgd:
    """Mini-batch descent for a number of epochs, or of steps. clip: bound on the global norm of the loss gradient, before decay.

    reset: momentum starts anew each round; otherwise it is one of the client's memories.
    """

    lr: float = 0.05
    batch: int = 32
    epochs: int = 1
    steps: int | None = None
    clip: float | None = None
    drop_last: bool = False
    reset: bool = True
    rule: Rule = field(default_factory=SGDRule)
    schedule: Schedule = field(default_factory=Schedule)

    def __call__(self, model: Chain, objective: Objective, job: Job, key: Key) -> DescentResult:
        trained: Params = {n: p for n, p in model.named_parameters() if p.requires_grad}
        weights, lr = list(trained.values()), self.schedule.at(self.lr, job.round)
        kept = (
            None
            if self.reset or objective.memory not in job.memories
            else [job.memories[objective.memory][n].clone() for n in trained]
        )
        state = self.rule.begin(weights, kept)
        key.fold("layers").seed_layers(weights[0].device)
        noise = key.fold("batch").generator()
        batches: list[tuple[Tensor, Tensor]] = []
        losses: list[Tensor] = []
        number = samples = 0

        def gradient(n: int) -> list[Tensor]:
            x, y = (
                batches[n]
                if objective.mix is None
                else objective.mix(*batches[n], job, key.fold("mix", number, n))
            )
            job.progress.step, job.progress.shapes = number, (x.shape, y.shape)
            loss = objective.loss(Step(x, y, model, job, trained, key, number))
            losses.append(loss.detach())
            grads = torch.autograd.grad(loss, weights, allow_unused=True, materialize_grads=True)
            return _clipped(grads, smallest_bound(self.clip, objective.clip))

        for number, positions in enumerate(self.groups(job, objective.order, key), 1):  # noqa: B007 (the gradient reads it)
            batches = [job.data.batch(p, noise) for p in positions]
            state = self.rule.step(weights, gradient, lr, state)
            samples += sum(len(p) for p in positions)
        slots, kept = self.rule.end(list(trained), state)
        keep = (
            {}
            if self.reset or kept is None
            else {objective.memory: dict(zip(trained, kept, strict=True))}
        )
        loss = torch.stack(losses).mean().item() if losses else 0.0
        return DescentResult(
            number,
            self.seen(job, samples),
            loss,
            self.rule.effective_steps(number) * lr,
            slots,
            keep,
        )

    def groups(self, job: Job, order: Order, key: Key) -> Iterator[list[Tensor]]:
        """The positions of each step's batches."""
        positions = self.positions(job, order, key)
        for _ in range(self.steps) if self.steps is not None else itertools.count():
            group = list(itertools.islice(positions, self.rule.batches))
            if len(group) < self.rule.batches:
                return
            yield group

    def positions(self, job: Job, order: Order, key: Key) -> Iterator[Tensor]:
        """Batch after batch: `epochs` epochs of them, or without end where steps are counted."""
        smallest, epoch = self._smallest(job), 0
        while self.steps is not None or epoch < self.epochs:
            chunks = torch.split(order(job.data, key.fold("epoch", epoch).generator()), self.batch)
            if len(chunks[0]) < smallest:
                return
            yield from chunks[:-1]
            if len(chunks[-1]) >= smallest:
                yield chunks[-1]
            epoch += 1

    def seen(self, job: Job, samples: int) -> int:
        """How many samples an epoch visits, in a descent over so many."""
        held, tail = len(job.data), len(job.data) % self.batch
        return min(samples, held - tail if tail < self._smallest(job) else held)

    def _smallest(self, job: Job) -> int:
        return self.batch if self.drop_last else 2 if job.model_pool.batch_statistics else 1


def changed(**settings: Any) -> Tuning:
    """The run's solver with other settings: a rule, a number of steps, a learning rate."""

    def tune(run: Solver) -> Solver:
        assert isinstance(run, Sgd)
        return replace(run, **settings)

    return tune


def smallest_bound(*bounds: float | None) -> float | None:
    """The smallest of the bounds, of which None is none.

    >>> smallest_bound(10.0, None, 3.0), smallest_bound(None)
    (3.0, None)
    """
    return min((b for b in bounds if b is not None), default=None)


def _clipped(grads: tuple[Tensor, ...], bound: float | None) -> list[Tensor]:
    if bound is None:
        return list(grads)
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
    return list(torch._foreach_mul(grads, torch.clamp(bound / (norm + 1e-6), max=1.0)))
