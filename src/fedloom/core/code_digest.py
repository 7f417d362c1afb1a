"""A digest of functions and of values made of them, for objects that have no file to check.

A lambda or a method defined in a notebook is stored in a run folder by name only. Its digest tells
two versions of it apart, so that an edited function is not taken for the one that made the folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, is_dataclass
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

from torch import Tensor

PLAIN = (str, bytes, int, float, complex, bool, type(None))


def code_digest(value: Any) -> str:
    """12 hex digits over the code of all functions in the value, and the values that they use.

    Covers byte code, constants, defaults, closures, and the globals that are plain values or
    functions of the same module. What functions import is not followed.
    """
    digest = hashlib.sha256()
    for piece in _pieces(value, set()):
        digest.update(repr(piece).encode() + b"\n")
    return digest.hexdigest()[:12]


def _pieces(value: Any, seen: set[int]) -> Iterator[Any]:
    """Plain values that describe the value; each object once."""
    if isinstance(value, PLAIN):
        yield value
        return
    if id(value) in seen:
        return
    seen.add(id(value))
    yield type(value).__qualname__
    for part in _parts(value):
        yield from _pieces(part, seen)


def _parts(value: Any) -> Iterable[Any]:
    """What an object is made of."""
    for kind, parts in _PARTS.items():
        if isinstance(value, kind):
            return parts(value)
    if is_dataclass(value):
        return [getattr(value, f.name) for f in fields(value) if f.compare]
    return list(vars(value).items()) if callable(value) and hasattr(value, "__dict__") else ()


def _function(function: FunctionType) -> Iterator[Any]:
    yield function.__code__
    yield function.__defaults__
    yield from (cell.cell_contents for cell in function.__closure__ or ())
    for name in function.__code__.co_names:
        used = function.__globals__.get(name)
        if isinstance(used, PLAIN) or _same_module(used, function):
            yield name
            yield used


def _class(cls: type) -> Iterator[Any]:
    yield f"{cls.__module__}.{cls.__qualname__}"
    yield from (member for member in vars(cls).values() if isinstance(member, FunctionType))


def _same_module(value: Any, function: Callable[..., Any]) -> bool:
    return isinstance(value, FunctionType) and value.__module__ == function.__module__


_PARTS: dict[type, Callable[[Any], Iterable[Any]]] = {
    FunctionType: _function,
    CodeType: lambda code: (code.co_code, code.co_names, code.co_consts),
    MethodType: lambda method: (method.__func__, method.__self__),
    partial: lambda call: (call.func, call.args, call.keywords),
    Tensor: lambda tensor: (tensor.detach().cpu().contiguous().numpy().tobytes(),),
    type: _class,
    dict: lambda mapping: mapping.items(),
    tuple: lambda items: items,
    list: lambda items: items,
}
