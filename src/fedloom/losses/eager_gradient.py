"""A term whose gradient is taken at once, so that what its forward pass keeps is free before the next term begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class _Known(torch.autograd.Function):
    """A scalar with a gradient that is known already."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, grads: tuple[Tensor, ...], *weights: Tensor) -> Tensor:
        ctx.grads = grads
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, *torch._foreach_mul(ctx.grads, outer[0])


def eager_gradient(value: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """The same scalar with the same gradient by the weights, and its graph gone; it must hang on nothing else that trains."""
    grads = torch.autograd.grad(value, weights, allow_unused=True, materialize_grads=True)
    same: Tensor = _Known.apply(value.detach(), grads, *weights)  # type: ignore[no-untyped-call]
    return same
