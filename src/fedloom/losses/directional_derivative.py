"""The derivative of the cross-entropy along one input direction, as a differentiable loss term.

    J = 1/B sum_i  d CE_i / du_i . v  =  d/ds mean_i CE(f(u_i + s v), y_i)  at s = 0

CE_i is the cross-entropy of sample i. Gradients with respect to the weights flow through J. Code
that differentiates the mean cross-entropy already has the 1/B: it sums the products with v.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.core.model_output import tensor_of
from fedloom.losses.tangent import propagate_tangent

Taps = dict[str, Tensor]


def directional_derivative(
    chain: Chain, u: Tensor, y: Tensor, direction: Tensor, after: str | None = None
) -> tuple[Taps, Tensor]:
    """The output of every block after `after` at u, and J.

    Both come from a single forward pass, so they share one dropout mask.
    """
    propagated = propagate_tangent(chain, u, direction, after)
    if propagated is None:
        return by_double_backward(chain, u, y, direction, after)
    taps, tangent = propagated
    logits = taps[chain.names[-1]]
    by_logits = logits.softmax(1) - F.one_hot(y, logits.shape[1])
    return taps, (by_logits * tangent).sum() / len(y)


def by_double_backward(
    chain: Chain, u: Tensor, y: Tensor, direction: Tensor, after: str | None = None
) -> tuple[Taps, Tensor]:
    """`directional_derivative` for any chain, from the input gradient with `create_graph=True`."""
    x = u = u.detach().requires_grad_()
    taps: Taps = {}
    with _twice_differentiable(chain):
        for name in chain.between(after, None):
            taps[name] = x = chain.block(name)(x)
    taps[chain.names[-1]] = x = tensor_of(x)
    (by_input,) = torch.autograd.grad(F.cross_entropy(x, y), u, create_graph=True)
    return taps, (by_input * direction).sum()


@contextmanager
def _twice_differentiable(chain: Chain) -> Iterator[None]:
    """Run recurrent layers in native PyTorch inside this context.

    cuDNN's cannot be differentiated twice, and oneDNN's take 1.5 times as long.
    """
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
