"""Generating samples of rare classes from samples of frequent ones, as M2m and FedAFA do.

M2m generates images and FedAFA features.

    target   a sample of class y becomes a target with probability 1 - n_y / n_max,
             where n_c is the client's number of samples of class c
    source   a sample of the same batch, drawn with a weight that depends on the two classes
    h <- h - step g / (||g|| + 1e-10),   g = dL(h)/dh,   starting from the source,
         until a classifier assigns it the target's class

The largest class has no targets, so a client with a single class, or with classes of equal size,
has none. A target whose source weights are all 0 is left unchanged.
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
from fedloom.core.transfer import to_device

# samples per class -> weights (target's class, source's class)
SourceWeights = Callable[[Tensor], Tensor]


class Pairs(NamedTuple):
    """Positions of the targets in a batch, of the source of each, and the source's weight (CPU)."""

    targets: Tensor
    sources: Tensor
    weights: Tensor


def count_gaps(counts: Tensor) -> Tensor:
    """max(n_s - n_t, 0) for every pair of classes, indexed [target t, source s]."""
    return (counts - counts[:, None]).clamp(min=0)


def target_probabilities(counts: Tensor) -> Tensor:
    """The probability that a sample becomes a target, per class: 1 - n_c / n_max."""
    return 1 - counts / counts.max()


def draw_pairs(step: Step, source_weights: SourceWeights) -> Pairs:
    """Draw the targets of a batch and their sources; positions are on the batch's device."""
    counts, weights = step.job.once(_class_counts, source_weights)
    pairs = draw_pairs_on_cpu(step.y.cpu(), counts, weights, step.key)
    device = step.y.device
    targets, sources = to_device(pairs.targets, device), to_device(pairs.sources, device)
    return Pairs(targets, sources, pairs.weights)


def _class_counts(job: Job, source_weights: SourceWeights) -> tuple[Tensor, Tensor]:
    counts = torch.bincount(job.data.labels, minlength=job.classes).double()
    return counts, source_weights(counts)


def draw_pairs_on_cpu(y: Tensor, counts: Tensor, weights: Tensor, key: Key) -> Pairs:
    """`draw_pairs` for labels on the CPU, with the samples and source weights of each class."""
    chosen = uniform_like(counts[y], key.fold("targets")) < target_probabilities(counts)[y]
    rows = weights[y][:, y]
    targets = (chosen & (rows.sum(1) > 0)).nonzero().flatten()
    rows = rows[targets]
    sources = torch.multinomial(rows, 1, generator=key.fold("sources").generator())
    return Pairs(targets, sources.flatten(), rows.gather(1, sources).flatten())


def uniform_like(like: Tensor, key: Key) -> Tensor:
    """Draws from the uniform distribution on [0, 1), with the shape, type and device of `like`."""
    draws = torch.rand(like.shape, generator=key.generator(), dtype=like.dtype)
    return to_device(draws, like.device)


def perturbed(h: Tensor, draws: Tensor, centre: float | Tensor, max_norm: float) -> Tensor:
    """h + (draws - centre), with the noise of each channel rescaled to norm `max_norm` at most.

    The norm is taken over the whole batch, as in the M2m authors' code.
    """
    return h + (draws - centre).renorm(2, 1, max_norm)


def normalised_descent(
    h: Tensor,
    loss: Callable[[Tensor], Tensor],
    step: float,
    iterations: int,
    low: float | Tensor = -math.inf,
    high: float | Tensor = math.inf,
) -> Tensor:
    """Gradient descent with steps of fixed length per sample, clamped to [low, high] each time.

    The two bounds are numbers or tensors, but not one of each.
    """
    for _ in range(iterations):
        h = h.detach().requires_grad_()
        (g,) = torch.autograd.grad(loss(h), h)
        norms = torch.linalg.vector_norm(g.flatten(1), dim=1).view(-1, *(1,) * (h.dim() - 1))
        h = (h.detach() - step * (g / (norms + 1e-10))).clamp(low, high)
    return h


def confidence(logits: Tensor, y: Tensor) -> Tensor:
    """The predicted probability of class y, per sample."""
    return logits.softmax(1).gather(1, y[:, None]).flatten()


def replaced(batch: Tensor, positions: Tensor, rows: Tensor, accepted: Tensor) -> Tensor:
    """A copy of the batch with the accepted ones of these rows at their positions.

    Every row is copied, the accepted ones or what was there: to select them, the host would have
    to know how many there are.
    """
    where = accepted.view(-1, *(1,) * (batch.dim() - 1))
    return batch.index_copy(0, positions, torch.where(where, rows, batch[positions]))


def received_model(step: Step) -> Chain:
    """The received model, frozen, in evaluation mode (running statistics)."""
    return step.job.once(Job.frozen, "received", "running")


def current_model(step: Step) -> Chain:
    """A frozen copy of the model being trained, in evaluation mode (running statistics)."""
    return step.job.model_pool.load("itself", step.model.state_dict()).requires_grad_(False).eval()
