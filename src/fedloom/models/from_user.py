"""A user's model: an nn.Module, a class, or a function of (shape, classes)."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from fedloom.core import user_code
from fedloom.core.chain import Chain
from fedloom.core.chain_from_module import cut
from fedloom.core.errors import UserError, raise_all
from fedloom.core.key import Key
from fedloom.core.signature import signature_of
from fedloom.core.spec import Spec, argument_problems
from fedloom.models.layers import Shape


def build_user_model(
    spec: Spec, source: nn.Module | Callable[..., Any], shape: Shape, classes: int, key: Key
) -> Chain:
    """The model as a chain of blocks; one that is not a chain becomes a chain of a single block.

    A module is copied and keeps the weights it has. A class or function is called, with torch's
    generator seeded from the key, so that every process builds the same weights.
    """
    if isinstance(source, nn.Module):
        module: nn.Module = copy.deepcopy(source)
    else:
        given = _arguments(spec.name, source, shape, classes)
        raise_all(argument_problems(source, spec.args, frozenset(given)), f"model '{spec.name}'")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(key.seed)
            module = user_code.call_user_function(
                "model", spec.name, nn.Module, source, {**given, **spec.args}
            )
    return module if isinstance(module, Chain) else cut(module)


def _arguments(name: str, source: Callable[..., Any], shape: Shape, classes: int) -> dict[str, Any]:
    """What the function is called with: shape and classes by name, else as its two parameters.

    A function or class without required parameters is called without any.
    """
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    known = signature_of(source).parameters
    offered: dict[str, Any] = {"shape": shape, "classes": classes}
    if named := {n: value for n, value in offered.items() if n in known}:
        return named
    required = [p for p in known.values() if p.default is p.empty and p.kind in positional]
    if not required:
        return {}
    if len(required) == 2:
        return dict(zip((p.name for p in required), offered.values(), strict=True))
    raise UserError(
        f"model '{user_code.short_reference(name)}' takes the parameters {', '.join(known)}; "
        "write a function of (shape, classes), or one without required parameters"
    )
