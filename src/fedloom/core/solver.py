"""Local training. `Sgd.__call__` is the only loop over batches in the package.

A Rule (core/rule.py) says how one step changes the weights, given a gradient.

A single sample has no batch statistics. With batch norm, a last batch of one sample is therefore
skipped, and a client with one sample would make no step; settings that produce such a client are
rejected when a run is prepared.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.job import Data, Job
from fedloom.core.key import Key
from fedloom.core.optimisers import SGDRule, norm_of_all
from fedloom.core.params import Params
from fedloom.core.precision import Kind, Precision
from fedloom.core.rule import Rule
from fedloom.core.step import Loss, Step
from fedloom.core.transfer import to_device

Order = Callable[[Data, torch.Generator], Tensor]  # the positions of one epoch

# changes a batch before the forward pass, as mixup does
Mix = Callable[[Tensor, Tensor, Job, Key], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Objective:
    """What a solver minimises.

    loss     of one mini-batch.
    order    which samples an epoch visits, in which order.
    mix      changes a batch before the forward pass.
    memory   the slot in which a client keeps the optimiser's state between rounds.
    clip     a bound on the gradient norm besides the solver's own; the smaller one applies.
    """

    loss: Loss
    order: Order
    mix: Mix | None = None
    memory: str = "solver"
    clip: float | None = None


@dataclass(frozen=True)
class DescentResult:
    """The result of local training.

    steps    number of steps.
    seen     samples visited per epoch; fewer than the client holds with drop_last.
    loss     mean training loss over batches; those of text in which no token counts are left out.
    lr_sum   how far a constant gradient of 1 would have moved the weights: the sum of the learning
             rates, and more with momentum. NaN with Adam, whose steps are not sums of gradients.
    slots    further weights by slot, made by the rule.
    keep     memories to keep, by slot.
    """

    steps: int
    seen: int
    loss: float
    lr_sum: float
    slots: Mapping[str, Params] = field(default_factory=dict)
    keep: Mapping[str, Params] = field(default_factory=dict)

    def then(self, other: DescentResult) -> DescentResult:
        """This descent followed by another one, as one result."""
        steps = self.steps + other.steps
        loss = (self.steps * self.loss + other.steps * other.loss) / max(steps, 1)
        lr_sum, seen = self.lr_sum + other.lr_sum, max(self.seen, other.seen)
        return DescentResult(
            steps, seen, loss, lr_sum, {**self.slots, **other.slots}, {**self.keep, **other.keep}
        )


class Solver(Protocol):
    """Trains the tensors of the model that require a gradient, in place."""

    def __call__(self, model: Chain, objective: Objective, job: Job, key: Key) -> DescentResult: ...


Tuning = Callable[[Solver], Solver]  # adapts the run's solver to a phase


@dataclass(frozen=True)
class Schedule:
    """The learning rate of a round, counted from 0.

    constant      lr
    exponential   lr * factor^round
    step          lr * factor^(round // every)
    cosine        half a cosine from lr to 0 over `over` rounds, then 0
    """

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
    """Mini-batch gradient descent for a number of epochs, or of steps if `steps` is given.

    clip: bound on the global norm of the loss gradient, before weight decay.
    reset: restart the optimiser every round; otherwise its state is one of the client's
    memories.
    precision: the arithmetic of a step (core/precision.py).
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
    precision: Kind = "full"

    def __call__(self, model: Chain, objective: Objective, job: Job, key: Key) -> DescentResult:
        trained: Params = {n: p for n, p in model.named_parameters() if p.requires_grad}
        weights, lr = list(trained.values()), self.schedule.at(self.lr, job.round)
        clip = smallest_bound(self.clip, objective.clip)
        kept = None if self.reset else job.memories.get(objective.memory)
        state = self.rule.begin(model, trained, kept)
        precision = Precision(self.precision, weights[0].device)
        key.fold("layers").seed_layers(weights[0].device)
        augmentation = key.fold("batch").generator()
        batches: list[tuple[Tensor, Tensor]] = []
        losses: list[Tensor] = []
        units: list[Tensor] = []  # tokens that count, where there may be none in a batch
        number = samples = 0

        def gradient(n: int) -> list[Tensor]:
            x, y = batches[n]
            if objective.mix is not None:
                x, y = objective.mix(x, y, job, key.fold("mix", number, n))
            job.progress.step, job.progress.shapes = number, (x.shape, y.shape)
            with precision.forward():
                loss = objective.loss(Step(x, y, model, job, trained, key, number))
            losses.append(loss.detach())
            if job.task.has_empty_batches:
                units.append(job.task.units(y))
            grads = torch.autograd.grad(
                precision.scaled(loss), weights, allow_unused=True, materialize_grads=True
            )
            return _clipped(precision.unscaled(_dense(grads)), clip)

        order = _order_on(weights[0].device, objective.order)
        steps = self.step_batches(job, order, key)
        for number, positions in enumerate(steps, 1):  # noqa: B007 (`gradient` reads number)
            batches = [job.data.batch(p, augmentation) for p in positions]
            step = partial(self.rule.step, weights, gradient, lr, state)
            state = precision.step(step, weights, state)
            samples += sum(len(p) for p in positions)
        precision.check_moved(number)
        slots, memory = self.rule.end(list(trained), state)
        keep = {} if memory is None or self.reset else {objective.memory: memory}
        return DescentResult(
            steps=number,
            seen=self.seen(job, samples),
            loss=_mean_loss(losses, units),
            lr_sum=self.rule.effective_steps(number - precision.skipped) * lr,
            slots={slot: _under_all_names(model, own) for slot, own in slots.items()},
            keep=keep,
        )

    def step_batches(self, job: Job, order: Order, key: Key) -> Iterator[list[Tensor]]:
        """For each step, the sample positions of its batches."""
        positions = self.batch_positions(job, order, key)
        for _ in range(self.steps) if self.steps is not None else itertools.count():
            group = list(itertools.islice(positions, self.rule.batches))
            if len(group) < self.rule.batches:
                return
            yield group

    def batch_positions(self, job: Job, order: Order, key: Key) -> Iterator[Tensor]:
        """The sample positions of each batch: `epochs` epochs, or endlessly if `steps` is given."""
        smallest, epoch = self._smallest_batch(job), 0
        while self.steps is not None or epoch < self.epochs:
            chunks = torch.split(order(job.data, key.fold("epoch", epoch).generator()), self.batch)
            if len(chunks[0]) < smallest:
                return
            yield from chunks[:-1]
            if len(chunks[-1]) >= smallest:
                yield chunks[-1]
            epoch += 1

    def seen(self, job: Job, samples: int) -> int:
        """Samples visited per epoch, in a descent that visited `samples` in total."""
        held, last_batch = len(job.data), len(job.data) % self.batch
        if last_batch < self._smallest_batch(job):
            held -= last_batch
        return min(samples, held)

    def _smallest_batch(self, job: Job) -> int:
        """Smaller batches are skipped."""
        if self.drop_last:
            return self.batch
        return 2 if job.model_pool.batch_statistics else 1


def changed(**settings: Any) -> Tuning:
    """The run's solver with some settings replaced: a rule, a number of steps, a learning rate."""

    def tune(run: Solver) -> Solver:
        assert isinstance(run, Sgd)
        return replace(run, **settings)

    return tune


def _order_on(device: torch.device, order: Order) -> Order:
    """The order with its positions on a device, to which those of an epoch are copied at once."""
    return lambda data, generator: to_device(order(data, generator), device)


def smallest_bound(*bounds: float | None) -> float | None:
    """The smallest of the bounds; None means no bound.

    >>> smallest_bound(10.0, None, 3.0), smallest_bound(None)
    (3.0, None)
    """
    return min((b for b in bounds if b is not None), default=None)


def _under_all_names(model: Chain, weights: Mapping[str, Tensor]) -> Params:
    """The weights, with those of the model under every name that they have; tied ones have several.

    weights: those of the model by their first names, and perhaps others.
    """
    first = {id(p): n for n, p in model.named_parameters()}
    names = {n: first[id(p)] for n, p in model.named_parameters(remove_duplicate=False)}
    others = {n: weights[known] for n, known in names.items() if known in weights}
    return {**weights, **others}


def _mean_loss(losses: list[Tensor], units: list[Tensor]) -> float:
    """The mean over batches; one in which no token counts has no loss and is left out.

    units: the tokens of each batch that count; empty if every batch has a loss. It waits once.
    """
    if not losses:
        return 0.0
    values = torch.stack(losses)
    mean = values.mean()
    if units:
        counted = torch.stack(units).to(values.device) > 0
        others = torch.where(counted, values, 0.0).sum() / counted.sum().clamp(min=1)
        mean = torch.where(counted.all(), mean, others)
    return mean.item()


def _dense(grads: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The gradients, of which those of nn.Embedding(sparse=True) are sparse; rules take none."""
    return tuple(g.to_dense() if g.is_sparse else g for g in grads)


def _clipped(grads: tuple[Tensor, ...], bound: float | None) -> list[Tensor]:
    if bound is None:
        return list(grads)
    scale = torch.clamp(bound / (norm_of_all(grads) + 1e-6), max=1.0)
    return list(torch._foreach_mul(grads, scale))
