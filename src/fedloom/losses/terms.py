"""Loss terms shared by several methods. Each maps a Step to a scalar."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce

import torch
from torch import Tensor

from fedloom.core.job import Job
from fedloom.core.params import Params
from fedloom.core.step import Loss


def received(job: Job) -> Params:
    """w^t, the weights the client received."""
    return job.received


def proximal_term(mu: float, centre: Callable[[Job], Mapping[str, Tensor]] = received) -> Loss:
    """mu/2 ||w - centre||^2; the centre is the received weights by default."""
    return lambda step: (
        0.5 * mu * _total((w - c).square().sum() for w, c in step.pieces_with(centre))
    )


def linear_term(direction: Callable[[Job], Mapping[str, Tensor]]) -> Loss:
    """<direction, w>: adds a direction, constant over the round, to the gradient."""
    return lambda step: _total(torch.dot(w, d) for w, d in step.pieces_with(direction))


def _total(values: Iterable[Tensor]) -> Tensor:
    return reduce(torch.add, values)
