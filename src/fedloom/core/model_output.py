"""Finds the logits in what a block or a model returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, fx

from fedloom.core.errors import UserError

# A Proxy stands for a tensor while a forward pass is traced.
_TENSORS = (Tensor, fx.Proxy)


def tensor_of(output: Any) -> Tensor:
    """The tensor itself, `output.logits`, `output["logits"]`, or the first tensor of a tuple.

    Raises UserError for anything else.

    >>> import torch
    >>> tensor_of({"features": torch.ones(2), "logits": torch.zeros(1)})
    tensor([0.])
    """
    if isinstance(output, Tensor):
        return output
    for value in _candidates(output):
        if isinstance(value, _TENSORS):
            return value  # type: ignore[return-value]
    raise UserError(
        f"no logits were found in what was returned, {contents(output)}; return a tensor, an "
        "object with .logits, a dict with the key 'logits', or a tuple with the logits first"
    )


def _candidates(output: Any) -> list[Any]:
    if isinstance(output, fx.Proxy):  # which has every attribute
        return [output]
    if isinstance(output, Mapping):
        return [output.get("logits")]
    if hasattr(output, "logits"):
        return [output.logits]
    return list(output) if isinstance(output, tuple) else []


def contents(output: Any) -> str:
    """What a model returned, in words.

    >>> contents({"scores": 1, "features": 2}), contents((1, 2)), contents(None)
    ("a dict of 'scores', 'features'", 'a tuple of 2 values', 'None')
    """
    kind = type(output).__name__
    if isinstance(output, Mapping):
        return f"a {kind} of {', '.join(repr(key) for key in list(output)[:5])}"
    if isinstance(output, (tuple, list)):
        return f"a {kind} of {len(output)} values"
    return "None" if output is None else f"a {kind}"
