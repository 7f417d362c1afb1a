"""What is wrong with named tensors that came from somewhere else: types, shapes, sizes, NaN."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from fedloom.core.errors import shown
from fedloom.core.params import Params

NOT_FINITE = "is not finite"


def type_problems(params: Any) -> Iterator[str]:
    """What is not a mapping of names to plain tensors."""
    if not isinstance(params, Mapping):
        yield f"it is a {type(params).__name__}, not a mapping of tensors"
        return
    for name, t in params.items():
        if not isinstance(name, str):
            yield f"the name {shown(name)} is not text"
        if not isinstance(t, Tensor):
            yield f"'{name}' is a {type(t).__name__}, not a tensor"
        elif not is_plain(t):
            yield f"tensor '{name}' is not a dense tensor"


def is_plain(t: Tensor) -> bool:
    """Whether a tensor is dense: neither sparse nor quantised."""
    return t.layout == torch.strided and not t.is_quantized


def type_problem(params: Any) -> str | None:
    """Why this is not a mapping of names to plain tensors, or None."""
    return next(type_problems(params), None)


def form_problems(params: Any, like: Mapping[str, Tensor]) -> Iterator[str]:
    """What differs from the expected names, shapes and types."""
    yield from type_problems(params)
    if set(params) != set(like):
        differing = sorted(map(str, set(params) ^ set(like)))
        yield f"tensor names differ from the model's at {differing[:3]}"
        return
    for name, expected in like.items():
        t = params[name]
        if t.shape != expected.shape or t.dtype != expected.dtype:
            yield (
                f"tensor '{name}' is {t.dtype} {tuple(t.shape)}, "
                f"expected {expected.dtype} {tuple(expected.shape)}"
            )
        if t.is_meta and not expected.is_meta:
            yield f"tensor '{name}' has no values"


def norm_problem(
    params: Mapping[str, Tensor], is_weight: Callable[[str], bool], bound: float
) -> str | None:
    """Why tensors are not finite or too large, or None."""
    norms = _norms(params)
    squares = {True: 0.0, False: 0.0}
    for name, norm in norms.items():
        if not math.isfinite(norm) and not bool(torch.isfinite(params[name]).all()):
            return f"tensor '{name}' {NOT_FINITE}"
        squares[is_weight(name)] += norm * norm
    weights, statistics = math.sqrt(squares[True]), math.sqrt(squares[False])
    if not weights <= bound:
        return f"its norm is {weights:.3g}, and at most {bound:.3g} is accepted (guard.max_norm)"
    if not statistics <= bound * bound:
        return (
            f"the norm of its statistics is {statistics:.3g}, "
            f"and at most {bound * bound:.3g} is accepted (the square of guard.max_norm)"
        )
    return None


def first_not_finite(params: Mapping[str, Tensor]) -> str | None:
    """The first tensor that contains NaN or Inf, or None."""
    suspects = (name for name, norm in _norms(params).items() if not math.isfinite(norm))
    return next((n for n in suspects if not bool(torch.isfinite(params[n]).all())), None)


def norm_of(params: Params, names: Collection[str]) -> float:
    """The norm of these tensors together."""
    return math.sqrt(sum(n * n for name, n in _norms(params).items() if name in names))


def _norms(params: Mapping[str, Tensor]) -> dict[str, float]:
    """The norm of every floating-point tensor, in float64, with one transfer from the device.

    Tensors on the meta device, on which costs are counted, have none.
    A norm is not finite if one of the values is not, and if the squares overflow.
    """
    floats = {n: t for n, t in params.items() if t.is_floating_point() and not t.is_meta}
    names = [name for name, t in floats.items() if t.numel()]
    if not names:
        return {}
    norms = torch.stack([n.double() for n in torch._foreach_norm([params[n] for n in names])])
    return dict(zip(names, norms.tolist(), strict=True))
