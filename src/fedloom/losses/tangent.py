"""Forward-mode differentiation of a chain: its outputs and their derivative along one direction.

Values and tangents are propagated together, layer by layer, by the rules in RULES. For a chain with
any other layer `propagate_tangent` returns None, and the caller differentiates twice instead: the
same numbers at a fifth more cost, and at several times the cost with an LSTM.

A module that is more than a sequence of layers can define its own rule, `along(carry, x, t)`, where
`carry(layer, x, t)` propagates through one of its layers. A tangent of one row stands for the whole
batch until a layer treats samples differently, so the first layer costs next to nothing.
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
BlockLayers = dict[str, list[nn.Module]]  # the layers of each block


def _linear(layer: nn.Linear, x: Tensor, t: Tensor) -> Dual:
    # One product for both, so that large weights are read only once.
    both = F.linear(torch.cat((x, t)), layer.weight)
    values, t = both[: len(x)], both[len(x) :]
    return values if layer.bias is None else values + layer.bias, t


def _conv(layer: nn.Conv2d, x: Tensor, t: Tensor) -> Dual:
    return layer(x), layer._conv_forward(t, layer.weight, None)


def _relu(layer: nn.ReLU, x: Tensor, t: Tensor) -> Dual:
    out = layer(x)
    return out, torch.ops.aten.threshold_backward(t.expand_as(out), out.detach(), 0)


def _max_pool(layer: nn.MaxPool2d, x: Tensor, t: Tensor) -> Dual:
    shape = layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.ceil_mode
    out, indices = F.max_pool2d(x, *shape, return_indices=True)
    return out, t.expand_as(x).flatten(2).gather(2, indices.flatten(2)).view_as(out)


def _dropout(layer: nn.Dropout, x: Tensor, t: Tensor) -> Dual:
    if not layer.training:
        return x, t
    mask = layer(torch.ones_like(x))  # the same random draws as calling the layer on x
    return x * mask, t * mask


def _reshape(layer: nn.Module, x: Tensor, t: Tensor) -> Dual:
    return layer(x), layer(t)


RULES: dict[type[nn.Module], Callable[[Any, Tensor, Tensor], Dual]] = {
    nn.Linear: _linear,
    nn.Conv2d: _conv,
    nn.ReLU: _relu,
    nn.MaxPool2d: _max_pool,
    nn.Dropout: _dropout,
    nn.Flatten: _reshape,
    nn.LSTM: tangent_lstm.states,
}


def propagate_tangent(
    chain: Chain, x: Tensor, direction: Tensor, after: str | None = None
) -> tuple[dict[str, Tensor], Tensor] | None:
    """The output of every block after `after`, and the derivative of the last along the direction.

    The direction is the same for all samples. None if a layer has no rule.
    """
    blocks = _layers_by_block(chain, after)
    if blocks is None:
        return None
    first_input = _apply_pre_hooks(chain.block(next(iter(blocks))), x)
    if first_input is None:
        return None
    taps, (x, t) = {}, (first_input, direction.unsqueeze(0))
    for name, layers in blocks.items():
        for layer in layers:
            x, t = _carry(layer, x, t)
        taps[name] = x
    return taps, t


def _carry(layer: Any, x: Tensor, t: Tensor) -> Dual:
    rule = RULES.get(type(layer))
    dual: Dual = layer.along(_carry, x, t) if rule is None else rule(layer, x, t)
    return dual


def _layers_by_block(chain: Chain, after: str | None) -> BlockLayers | None:
    """The layers of each block after `after`; None if one of them has no rule."""
    names = chain.between(after, None)
    blocks = {name: list(_layers(chain.block(name), is_first=name == names[0])) for name in names}
    return blocks if all(_has_rule(layer) for ls in blocks.values() for layer in ls) else None


def _has_rule(layer: nn.Module) -> bool:
    """Whether the layer has a rule, or defines `along` and all its children have one."""
    if not _is_replaceable(layer):
        return False
    if isinstance(layer, nn.LSTM) and not tangent_lstm.is_supported(layer):
        return False
    if type(layer) in RULES:
        return True
    return hasattr(layer, "along") and all(map(_has_rule, layer.children()))


def _layers(module: nn.Module, is_first: bool = False) -> Iterator[nn.Module]:
    """The layers of a module in the order of their calls.

    is_first: it receives the chain's input, whose pre-hooks `_apply_pre_hooks` has already run.
    """
    if type(module) is nn.Sequential and _is_replaceable(module, is_first):
        for layer in module:
            yield from _layers(layer)
    else:
        yield module


def _is_replaceable(module: nn.Module, is_first: bool = False) -> bool:
    """Whether a rule may stand in for calling the module: no hooks, and no compiled forward."""
    return not (
        module._forward_hooks
        or (module._forward_pre_hooks and not is_first)
        or "forward" in vars(module)
    )


def _apply_pre_hooks(block: nn.Module, x: Tensor) -> Tensor | None:
    """The input after the first block's pre-hooks, which may change its memory layout only.

    None if a hook changes the values.
    """
    for hook in block._forward_pre_hooks.values():
        result = hook(block, (x,))
        if isinstance(result, tuple):
            result = result[0]
        changed = x if result is None else result
        if not torch.equal(changed, x):
            return None
        x = changed
    return x
