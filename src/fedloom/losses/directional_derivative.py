"""The slope of the cross-entropy along one direction of the inputs, as a term of a loss: gradients by the weights flow through it.

    J = 1/B sum_i  d CE_i / du_i . v  =  d/ds mean_i CE(f(u_i + s v), y_i)  at s = 0

The derivative of the mean already has the 1/B, so the products with v are summed, not averaged once more.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.losses.tangent import carried

Taps = dict[str, Tensor]


def directional_derivative(
    chain: Chain, u: Tensor, y: Tensor, direction: Tensor, after: str | None = None
) -> tuple[Taps, Tensor]:
    """The output of every block behind `after` at u, and J there, in one forward pass: so they share what dropout drops."""
    found = carried(chain, u, direction, after)
    if found is None:
        return twice(chain, u, y, direction, after)
    taps, tangent = found
    logits = taps[chain.names[-1]]
    return taps, ((logits.softmax(1) - F.one_hot(y, logits.shape[1])) * tangent).sum() / len(y)


def twice(
    chain: Chain, u: Tensor, y: Tensor, direction: Tensor, after: str | None = None
) -> tuple[Taps, Tensor]:
    """The same for any chain: the gradient by the inputs, with a graph of its own."""
    x = u = u.detach().requires_grad_()
    taps: Taps = {}
    with _differentiable(chain):
        for name in chain.between(after, None):
            taps[name] = x = chain.block(name)(x)
    (by_input,) = torch.autograd.grad(F.cross_entropy(x, y), u, create_graph=True)
    return taps, (by_input * direction).sum()


@contextmanager
def _differentiable(chain: Chain) -> Iterator[None]:
    """Inside, recurrent layers are torch's own: cuDNN's cannot be differentiated twice, and oneDNN's take 1.5 times as long."""
    if not any(isinstance(layer, nn.RNNBase) for layer in chain.modules()):
        yield
        return
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    try:
        with torch.backends.cudnn.flags(enabled=False):
            yield
    finally:
        torch.backends.mkldnn.enabled = before
