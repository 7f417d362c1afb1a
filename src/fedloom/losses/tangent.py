"""How a chain's outputs change along one direction of its inputs, carried forward with the values, layer by layer.

It is for nets of the layers in RULES; others get None and must be differentiated twice instead, which gives the same numbers and
costs a fifth more, with an LSTM several times as much. A module that is more than a line of layers may say itself how a tangent
goes through it: `along(carry, x, t)`, where carry(layer, x, t) does it for a layer that it has. A tangent of one row stands for the
whole batch until a layer tells the samples apart, so that the first layer has next to nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.losses import tangent_lstm

Dual = tuple[Tensor, Tensor]  # values, and their derivative along the direction
Plan = dict[str, list[nn.Module]]  # the layers of each block


def _linear(layer: nn.Linear, x: Tensor, t: Tensor) -> Dual:
    both = F.linear(torch.cat((x, t)), layer.weight)  # in one product: large weights are read once
    values, t = both[: len(x)], both[len(x) :]
    return values if layer.bias is None else values + layer.bias, t


def _conv(layer: nn.Conv2d, x: Tensor, t: Tensor) -> Dual:
    return layer(x), layer._conv_forward(t, layer.weight, None)


def _relu(layer: nn.ReLU, x: Tensor, t: Tensor) -> Dual:
    out = layer(x)
    return out, torch.ops.aten.threshold_backward(t.expand_as(out), out.detach(), 0)


def _max_pool(layer: nn.MaxPool2d, x: Tensor, t: Tensor) -> Dual:
    shape = layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.ceil_mode
    out, places = F.max_pool2d(x, *shape, return_indices=True)
    return out, t.expand_as(x).flatten(2).gather(2, places.flatten(2)).view_as(out)


def _dropout(layer: nn.Dropout, x: Tensor, t: Tensor) -> Dual:
    if not layer.training:
        return x, t
    kept = layer(torch.ones_like(x))  # draws as the layer itself does
    return x * kept, t * kept


def _shape(layer: nn.Module, x: Tensor, t: Tensor) -> Dual:
    return layer(x), layer(t)


RULES: dict[type[nn.Module], Callable[[Any, Tensor, Tensor], Dual]] = {
    nn.Linear: _linear,
    nn.Conv2d: _conv,
    nn.ReLU: _relu,
    nn.MaxPool2d: _max_pool,
    nn.Dropout: _dropout,
    nn.Flatten: _shape,
    nn.LSTM: tangent_lstm.states,
}


def carried(
    chain: Chain, x: Tensor, direction: Tensor, after: str | None = None
) -> tuple[dict[str, Tensor], Tensor] | None:
    """The output of every block behind `after`, and the derivative of the last one along the direction, the same for all samples.

    None if there is a layer whose derivative is not known here.
    """
    blocks = _plan(chain, after)
    start = None if blocks is None else _laid(chain.block(next(iter(blocks))), x)
    if blocks is None or start is None:
        return None
    taps, (x, t) = {}, (start, direction.unsqueeze(0))
    for name, layers in blocks.items():
        for layer in layers:
            x, t = _carry(layer, x, t)
        taps[name] = x
    return taps, t


def _carry(layer: Any, x: Tensor, t: Tensor) -> Dual:
    rule = RULES.get(type(layer))
    dual: Dual = layer.along(_carry, x, t) if rule is None else rule(layer, x, t)
    return dual


def _plan(chain: Chain, after: str | None) -> Plan | None:
    names = chain.between(after, None)
    blocks = {name: list(_layers(chain.block(name), enters=name == names[0])) for name in names}
    return blocks if all(_known(layer) for layers in blocks.values() for layer in layers) else None


def _known(layer: nn.Module) -> bool:
    """Whether there is a rule for it, or it leads through layers that all have one."""
    if not _plain(layer) or (isinstance(layer, nn.LSTM) and not tangent_lstm.simple(layer)):
        return False
    return type(layer) in RULES or (hasattr(layer, "along") and all(map(_known, layer.children())))


def _layers(module: nn.Module, enters: bool = False) -> Iterator[nn.Module]:
    """In the order in which they are called. enters: its input is that of the first layer, which `_laid` hands to its hooks."""
    if type(module) is nn.Sequential and _plain(module, enters):
        for layer in module:
            yield from _layers(layer)
    else:
        yield module


def _plain(module: nn.Module, enters: bool = False) -> bool:
    """Whether it may be called by a rule: nobody listens to it, and its call is not replaced by a compiled one."""
    return not (
        module._forward_hooks
        or (module._forward_pre_hooks and not enters)
        or "forward" in vars(module)
    )


def _laid(block: nn.Module, x: Tensor) -> Tensor | None:
    """The input as hooks before the first block lay it out in memory (channels last); None if they change its numbers."""
    for hook in block._forward_pre_hooks.values():
        made = hook(block, (x,))
        found = x if made is None else made[0] if isinstance(made, tuple) else made
        if not torch.equal(found, x):
            return None
        x = found
    return x
