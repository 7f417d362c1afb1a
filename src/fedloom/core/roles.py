"""The policy for buffers, in its one place: what may happen to each tensor of a model at the server.

weights      parameters, the affine ones of a norm included: averaged, and all that a server optimiser may touch.
statistics   floating-point buffers (running mean and variance): averaged like weights, but never part of a momentum or of a
             second moment, which would drive a variance below zero.
counters     integer buffers (batches seen): averaged in float64 and truncated back to an integer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.params import Params


@dataclass(frozen=True)
class Roles:
    """The names of a model's tensors by role."""

    weights: frozenset[str]
    statistics: frozenset[str]
    counters: frozenset[str]

    @staticmethod
    def of(chain: Chain) -> Roles:
        """Read off the model; tensors a model does not save (non-persistent buffers) have no role."""
        saved = chain.state_dict()
        weights = frozenset(n for n, _ in chain.named_parameters(remove_duplicate=False))
        counters = frozenset(
            n for n, t in saved.items() if n not in weights and not t.is_floating_point()
        )
        return Roles(weights, frozenset(saved) - weights - counters, counters)


def moved(params: Mapping[str, Tensor], by: Mapping[str, Tensor]) -> Params:
    """params + by, where by may lack names (private tensors stay) and holds float64 for counters, which are truncated."""
    return {n: t if n not in by else _moved(t, by[n]) for n, t in params.items()}


def _moved(t: Tensor, by: Tensor) -> Tensor:
    if t.is_floating_point():
        return t + by
    mean = t.cpu().double() + by + 1e-6  # a mean of equal counts may come out a rounding below them
    return torch.trunc(mean).to(t.device, t.dtype)
