"""A loss term whose gradient is computed at once, freeing its activations before the next term."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class _PrecomputedGradient(torch.autograd.Function):
    """A scalar whose gradient has already been computed."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, grads: tuple[Tensor, ...], *weights: Tensor) -> Tensor:
        ctx.grads = grads
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, *torch._foreach_mul(ctx.grads, outer[0])


def eager_gradient(value: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """The same scalar with the same gradient with respect to the weights, but without its graph.

    The scalar must not depend on any other tensor that is being trained.
    """
    grads = torch.autograd.grad(value, weights, allow_unused=True, materialize_grads=True)
    scalar: Tensor = _PrecomputedGradient.apply(  # type: ignore[no-untyped-call]
        value.detach(), grads, *weights
    )
    return scalar
