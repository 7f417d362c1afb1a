"""What the server may do with each tensor of a model, by role.

weights      parameters, including the affine ones of a normalisation layer: averaged, and the only
             tensors that a server optimiser changes.
statistics   floating-point buffers (running mean and variance): averaged like weights, but never
             part of a momentum or second moment, which would drive a variance below zero.
counters     integer buffers (batches seen): averaged in float64 and truncated to an integer. A
             mask of true and false is one of ones and zeros: true where it is so for all clients.
frozen       parameters that the builder of the model froze (requires_grad=False): never trained and
             never uploaded, so they keep their initial values. The buffers of a frozen layer are
             statistics and counters like all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.params import Params
from fedloom.core.transfer import in_float64


@dataclass(frozen=True)
class Roles:
    """The names of a model's tensors by role."""

    weights: frozenset[str]
    statistics: frozenset[str]
    counters: frozenset[str]
    frozen: frozenset[str] = frozenset()

    @staticmethod
    def of(chain: Chain) -> Roles:
        """The roles of the tensors of a model as it was built, before any training.

        Non-persistent buffers (never saved) have none.
        """
        saved = chain.state_dict()
        parameters = dict(chain.named_parameters(remove_duplicate=False))
        weights = frozenset(n for n, p in parameters.items() if p.requires_grad)
        buffers = saved.keys() - parameters.keys()
        counters = frozenset(n for n in buffers if not saved[n].is_floating_point())
        frozen = frozenset(parameters) - weights
        return Roles(weights, frozenset(buffers) - counters, counters, frozen)


def change(after: Tensor, before: Tensor) -> Tensor:
    """What a client uploads of a tensor: after - before; of true and false, where they differ."""
    return after ^ before if before.dtype == torch.bool else after - before


def moved(params: Mapping[str, Tensor], by: Mapping[str, Tensor]) -> Params:
    """params + by. Tensors that `by` lacks (private ones) stay as they are.

    For counters `by` holds float64, and the result is truncated to an integer.
    """
    return {n: t if n not in by else _moved(t, by[n]) for n, t in params.items()}


def _moved(t: Tensor, by: Tensor) -> Tensor:
    if t.is_floating_point():
        return t + by
    if t.dtype == torch.bool:  # `by` is the share of clients with another value
        by = torch.where(t.to(by.device), -by, by)
    # 1e-6: the mean of equal counts may come out just below them by rounding
    mean = in_float64(t) + by + 1e-6
    return torch.trunc(mean).to(t.device, t.dtype)
