"""Terms that several methods share. Each is a function of a Step and a scalar."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from fedloom.core.job import Job
from fedloom.core.step import Loss


def dot(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> Tensor:
    """<a, b> over the names of a."""
    return torch.stack([torch.sum(t * b[n]) for n, t in a.items()]).sum()


def squared_distance(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> Tensor:
    """||a - b||^2 over the names of a."""
    return torch.stack([torch.sum((t - b[n]).square()) for n, t in a.items()]).sum()


def prox(mu: float) -> Loss:
    """mu/2 ||w - w^t||^2: a spring to the received weights."""
    return lambda step: 0.5 * mu * squared_distance(step.params, step.job.received)


def inner(direction: Callable[[Job], Mapping[str, Tensor]]) -> Loss:
    """<direction, w>: adds a direction, the same all round, to the gradient."""
    return lambda step: dot(step.params, step.job.once(direction))
