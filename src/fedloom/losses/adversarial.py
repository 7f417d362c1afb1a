"""Samples of rare classes made of samples of frequent ones: what M2m does with images and FedAFA with features.

    target   a sample of class y becomes one with probability 1 - n_y / n_max; n are the client's samples by class
    source   a sample of the same batch, drawn by a weight that hangs on the two classes
    h <- h - step g / (||g|| + 1e-10),   g = dL(h)/dh,   from the source, until a classifier takes it for the target's class

The largest class has no targets, and so a client of one class, or of equal ones, has none. A target for which all weights are 0
stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.job import Job
from fedloom.core.key import Key
from fedloom.core.step import Step

Weigh = Callable[[Tensor], Tensor]  # samples by class -> weights (target's class, source's class)


class Pairs(NamedTuple):
    """Places of a batch to be filled anew, the sample that each is filled from, and the weight of that one (on the CPU)."""

    places: Tensor
    sources: Tensor
    weights: Tensor


def surplus(counts: Tensor) -> Tensor:
    """How many samples more the source's class has than the target's, or 0."""
    return (counts - counts[:, None]).clamp(min=0)


def rarity(counts: Tensor) -> Tensor:
    """How likely a sample of each class becomes a target."""
    return 1 - counts / counts.max()


def paired(step: Step, weigh: Weigh) -> Pairs:
    """The targets of a batch with their sources."""
    counts, weights = step.job.once(_counted, weigh)
    pairs, device = drawn(step.y.cpu(), counts, weights, step.key), step.y.device
    return Pairs(pairs.places.to(device), pairs.sources.to(device), pairs.weights)


def _counted(job: Job, weigh: Weigh) -> tuple[Tensor, Tensor]:
    counts = torch.bincount(job.data.labels, minlength=job.classes).double()
    return counts, weigh(counts)


def drawn(y: Tensor, counts: Tensor, weights: Tensor, key: Key) -> Pairs:
    """The same for labels on the CPU."""
    rare = uniform(counts[y], key.fold("targets")) < rarity(counts)[y]
    rows = weights[y][:, y]
    places = (rare & (rows.sum(1) > 0)).nonzero().flatten()
    rows = rows[places]
    sources = torch.multinomial(rows, 1, generator=key.fold("sources").generator())
    return Pairs(places, sources.flatten(), rows.gather(1, sources).flatten())


def uniform(like: Tensor, key: Key) -> Tensor:
    """Draws from [0, 1) of that shape."""
    return torch.rand(like.shape, generator=key.generator(), dtype=like.dtype).to(like.device)


def shaken(h: Tensor, draws: Tensor, centre: float, length: float) -> Tensor:
    """With noise around the centre, no longer than `length` in each channel over the whole batch, as M2m's authors have it."""
    return h + (draws - centre).renorm(2, 1, length)


def descended(
    h: Tensor,
    loss: Callable[[Tensor], Tensor],
    step: float,
    times: int,
    low: float = -math.inf,
    high: float = math.inf,
) -> Tensor:
    """So many steps of one length against the gradient, each sample for itself, and each time back into the bounds."""
    for _ in range(times):
        h = h.detach().requires_grad_()
        (g,) = torch.autograd.grad(loss(h), h)
        norms = torch.linalg.vector_norm(g.flatten(1), dim=1).view(-1, *(1,) * (h.dim() - 1))
        h = (h.detach() - step * (g / (norms + 1e-10))).clamp(low, high)
    return h


def confidence(logits: Tensor, y: Tensor) -> Tensor:
    """The probability that is given to each sample's class."""
    return logits.softmax(1).gather(1, y[:, None]).flatten()


def filled(batch: Tensor, places: Tensor, made: Tensor) -> Tensor:
    """The batch with others at these places."""
    return batch.index_copy(0, places, made)


def original(step: Step) -> Chain:
    """The received model with its running statistics, closed."""
    return step.job.once(Job.frozen, "received", "running")


def itself(step: Step) -> Chain:
    """A copy of the model in training as it stands, with its running statistics, closed."""
    return step.job.model_pool.load("itself", step.model.state_dict()).requires_grad_(False).eval()
