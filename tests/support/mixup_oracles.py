"""FedMix and its baselines as the paper writes them: every sample and derivative separately."""

import itertools
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from fedloom.core.key import Key
from support.models import CLASSES
from support.objective_oracles import Loss, Objective
from support.oracles import State, World

Draw = Callable[[Key], tuple[Tensor, Tensor]]  # one foreign sample and its label
Source = Callable[[World, int, int], Draw]  # of a round and a client
Numbered = Callable[
    [nn.Module, Tensor, Tensor, int], Tensor
]  # a loss that is given its step number


def one_hot(y: Tensor) -> Tensor:
    return torch.eye(CLASSES, dtype=torch.float64)[y]


def soft_cross_entropy(logits: Tensor, label: Tensor) -> Tensor:
    """Cross-entropy with probabilities as label, one row for all samples or one per sample."""
    return (torch.logsumexp(logits, 1) - (logits * label).sum(1)).mean()


def phase(world: World, t: int, client: int) -> Key:
    return world.key.fold("round", t, "client", client, "phase", 0)


def numbering_steps(make: Callable[[World, int, int], Numbered]) -> Objective:
    def objective(world: World, t: int, client: int, sent: State, last: State) -> Loss:
        steps, loss = itertools.count(1), make(world, t, client)
        return lambda model, x, y: loss(model, x, y, next(steps))

    return objective


def averages(world: World, client: int, size: int, key: Key) -> list[tuple[Tensor, Tensor]]:
    data = world.clients[client]
    order = torch.randperm(len(data), generator=key.generator()).tolist()
    groups = [order[i : i + (size or len(data))] for i in range(0, len(data), size or len(data))]
    return [
        (sum(data.x[i] for i in g) / len(g), sum(one_hot(data.y[i]) for i in g) / len(g))
        for g in groups
    ]


def from_all_clients(size: int = 0, but_own: bool = False) -> Source:
    """MAFL (Yoon, algorithm 1): the averages of all clients, or of all others."""

    def source(world: World, t: int, client: int) -> Draw:
        given = range(len(world.clients))
        keys = [world.key.fold("exchange", 0, "client", c, "mashed", "split") for c in given]
        pool = [
            e
            for c in given
            if not (but_own and c == client)
            for e in averages(world, c, size, keys[c])
        ]
        return lambda key: pool[key.fold("mashed").seed % len(pool)]

    return source


def from_own_data(size: int) -> Source:
    """Local means (Yoon, appendix D)."""

    def source(world: World, t: int, client: int) -> Draw:
        pool = averages(world, client, size, world.key.fold("round", t, "client", client, "means"))
        return lambda key: pool[key.seed % len(pool)]

    return source


def from_noise(deviation: float) -> Source:
    """Random noise (Yoon, appendix D)."""

    def draw(key: Key) -> tuple[Tensor, Tensor]:
        noise = torch.randn(6, generator=key.generator(), dtype=torch.float64)
        return deviation * noise, torch.full((CLASSES,), 1 / CLASSES, dtype=torch.float64)

    return lambda world, t, client: draw


def naivemix(lam: float, source: Source) -> Objective:
    """Yoon, eq. (1)."""

    def make(world: World, t: int, client: int) -> Numbered:
        draw = source(world, t, client)

        def loss(model: nn.Module, x: Tensor, y: Tensor, step: int) -> Tensor:
            x_g, y_g = draw(phase(world, t, client).fold("mix", step, 0))
            logits = model((1 - lam) * x + lam * x_g)
            return (1 - lam) * soft_cross_entropy(logits, one_hot(y)) + lam * soft_cross_entropy(
                logits, y_g
            )

        return loss

    return numbering_steps(make)


def fedmix(lam: float, weight: float, source: Source, common: bool = False) -> Objective:
    """Yoon, eq. (5): per sample, the derivative of its loss times the average; then the mean.

    common: as in public code, the derivative of the batch's mean loss; again the mean over samples.
    """

    def make(world: World, t: int, client: int) -> Numbered:
        draw = source(world, t, client)

        def loss(model: nn.Module, x: Tensor, y: Tensor, step: int) -> Tensor:
            x_g, y_g = draw(phase(world, t, client).fold("step", step))
            u = ((1 - lam) * x).requires_grad_()
            logits = model(u)
            each = torch.logsumexp(logits, 1) - logits[range(len(y)), y]
            if common:
                (by_input,) = torch.autograd.grad(each.mean(), u, create_graph=True)
                slopes = [(row * x_g).sum() for row in by_input]
            else:
                slopes = [
                    (torch.autograd.grad(one, u, create_graph=True)[0] * x_g).sum() for one in each
                ]
            return (
                (1 - lam) * each.mean()
                + lam * soft_cross_entropy(logits, y_g)
                + weight * sum(slopes) / len(y)
            )

        return loss

    return numbering_steps(make)


def globalmixup(alpha: float, lam: float, samples: int, but_own: bool) -> Objective:
    """Yoon, eq. (3): raw samples of all clients, a different one per sample of a batch."""

    def make(world: World, t: int, client: int) -> Numbered:
        pool = []
        for c, data in enumerate(world.clients):
            key = world.key.fold("exchange", 0, "client", c, "raw")
            given = torch.randperm(len(data), generator=key.generator()).tolist()[: samples or None]
            pool += [(data.x[i], data.y[i]) for i in given if not (but_own and c == client)]

        def loss(model: nn.Module, x: Tensor, y: Tensor, step: int) -> Tensor:
            draws = np.random.default_rng(phase(world, t, client).fold("mix", step, 0).seed)
            share = draws.beta(alpha, alpha) if alpha else lam
            others = [pool[i] for i in draws.integers(len(pool), size=len(y))]
            logits = model((1 - share) * x + share * torch.stack([x for x, _ in others]))
            return (1 - share) * soft_cross_entropy(
                logits, one_hot(y)
            ) + share * soft_cross_entropy(logits, one_hot(torch.stack([y for _, y in others])))

        return loss

    return numbering_steps(make)


def manifold(alpha: float) -> Objective:
    """Mixup of the outputs of block `stem` (Verma, algorithm 1), with gradients through both."""

    def make(world: World, t: int, client: int) -> Numbered:
        def loss(model: nn.Module, x: Tensor, y: Tensor, step: int) -> Tensor:
            draws = np.random.default_rng(phase(world, t, client).fold("step", step).seed)
            share, other = draws.beta(alpha, alpha), draws.permutation(len(y)).tolist()
            h = model.stem(x)
            logits = model.head(model.body(share * h + (1 - share) * h[other]))
            return share * soft_cross_entropy(logits, one_hot(y)) + (
                1 - share
            ) * soft_cross_entropy(logits, one_hot(y[other]))

        return loss

    return numbering_steps(make)
