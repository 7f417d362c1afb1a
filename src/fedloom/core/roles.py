"""What the server may do with each tensor of a model, by role.

weights      parameters, including the affine ones of a normalisation layer: averaged, and the only
             tensors that a server optimiser changes.
statistics   floating-point buffers (running mean and variance): averaged like weights, but never
             part of a momentum or second moment, which would drive a variance below zero.
counters     integer buffers (batches seen): averaged in float64 and truncated to an integer.
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
        """The roles of a model's tensors; non-persistent buffers (never saved) have none."""
        saved = chain.state_dict()
        weights = frozenset(n for n, _ in chain.named_parameters(remove_duplicate=False))
        counters = frozenset(
            n for n, t in saved.items() if n not in weights and not t.is_floating_point()
        )
        return Roles(weights, frozenset(saved) - weights - counters, counters)


def moved(params: Mapping[str, Tensor], by: Mapping[str, Tensor]) -> Params:
    """params + by. Tensors that `by` lacks (private ones) stay as they are.

    For counters `by` holds float64, and the result is truncated to an integer.
    """
    return {n: t if n not in by else _moved(t, by[n]) for n, t in params.items()}


def _moved(t: Tensor, by: Tensor) -> Tensor:
    if t.is_floating_point():
        return t + by
    # 1e-6: the mean of equal counts may come out just below them by rounding
    mean = t.cpu().double() + by + 1e-6
    return torch.trunc(mean).to(t.device, t.dtype)
