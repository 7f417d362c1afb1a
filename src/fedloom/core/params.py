"""Arithmetic on named tensors. A Params is never modified after it was passed or returned."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

Params = dict[str, Tensor]


def zeros(like: Mapping[str, Tensor]) -> Params:
    """Zeros of the same names, shapes, types and devices."""
    return {n: torch.zeros_like(t) for n, t in like.items()}


def zeros_view(like: Mapping[str, Tensor]) -> Params:
    """Read-only zeros of the same names, shapes, types and devices.

    Each tensor is a single zero, expanded, so it takes no memory.
    """
    return {n: t.new_zeros(()).expand_as(t) for n, t in like.items()}


def clone(params: Mapping[str, Tensor]) -> Params:
    """A detached, contiguous copy that shares no memory with the original.

    Contiguous, because the rounding of a sum depends on the memory layout.
    """
    return {n: t.detach().clone(memory_format=torch.contiguous_format) for n, t in params.items()}


def subtract(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> Params:
    """a - b over the names of a."""
    return {n: t - b[n] for n, t in a.items()}


def add(a: Mapping[str, Tensor], b: Mapping[str, Tensor], scale: float = 1.0) -> Params:
    """a + scale * b over the names of a; tensors that b lacks are returned unchanged."""
    return {n: _added(t, b[n], scale) if n in b else t for n, t in a.items()}


def _added(t: Tensor, other: Tensor, scale: float) -> Tensor:
    """torch.add is one pass over memory, but it does not take a fractional alpha for integers."""
    return torch.add(t, other, alpha=scale) if t.is_floating_point() else t + scale * other


def select(params: Mapping[str, Tensor], names: Iterable[str]) -> Params:
    """The tensors with these names, in the order of params."""
    wanted = frozenset(names)
    return {n: t for n, t in params.items() if n in wanted}


def without(params: Mapping[str, Tensor], names: frozenset[str]) -> Params:
    """The tensors with other names than these, in the order of params."""
    return {n: t for n, t in params.items() if n not in names}


def nbytes(params: Mapping[str, Tensor]) -> int:
    """Bytes on the wire."""
    return sum(t.numel() * t.element_size() for t in params.values())


def sha256(params: Mapping[str, Tensor]) -> str:
    """A digest of names, types, shapes and bits, in the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(params):
        t = params[name].detach().cpu().contiguous()
        digest.update(f"{name}|{t.dtype}|{tuple(t.shape)}|".encode())
        digest.update(t.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
