"""Terms that several methods share. Each is a function of a Step and a scalar."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce

import torch
from torch import Tensor

from fedloom.core.job import Job
from fedloom.core.params import Params
from fedloom.core.step import Loss


def received(job: Job) -> Params:
    """w^t, where the client started."""
    return job.received


def prox(mu: float, centre: Callable[[Job], Mapping[str, Tensor]] = received) -> Loss:
    """mu/2 ||w - centre||^2: a spring, to the received weights if nothing else is said."""
    return lambda step: (
        0.5 * mu * _total((w - c).square().sum() for w, c in step.pieces_with(centre))
    )


def inner(direction: Callable[[Job], Mapping[str, Tensor]]) -> Loss:
    """<direction, w>: adds a direction, the same all round, to the gradient."""
    return lambda step: _total(torch.dot(w, d) for w, d in step.pieces_with(direction))


def _total(values: Iterable[Tensor]) -> Tensor:
    return reduce(torch.add, values)
