"""What all messages between server and sites have in common; messages.py has their meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

from torch import Tensor

from fedloom.core.errors import shown
from fedloom.core.json_checks import Check, fields, text
from fedloom.core.params import Params
from fedloom.core.request import Work
from fedloom.engines.flower import envelope
from fedloom.engines.flower.envelope import decode
from fedloom.engines.wire import Facts, WireError, unflatten

M = TypeVar("M")
Parts = Mapping[str, bytes]
REQUEST, BROADCAST, REPLY = "request", "broadcast", "reply"  # names of parts


@dataclass(frozen=True)
class Header:
    """The facts with which every message begins."""

    request: str
    run: str
    site: str

    def facts(self, kind: str, **more: Any) -> Facts:
        """The facts of a message of this kind."""
        begin = {"kind": kind, "request": self.request, "run": self.run, "site": self.site}
        return {**begin, **more}


NO_HEADER = Header("", "", "")  # of a reply to something that cannot be read

_HEADER: dict[str, Check] = {"kind": text(), "request": text(), "run": text(), "site": text()}


@dataclass(frozen=True)
class Received:
    """A message whose facts have been checked; parts: all parts that came with it."""

    header: Header
    facts: Facts
    tensors: Params
    parts: Parts
    limit: int


# by kind: checks of the facts besides the header, and what makes the message of them
Kinds = Mapping[str, tuple[dict[str, Check], Callable[[Received], M]]]


def read(parts: Parts, name: str, limit: int, kinds: Kinds[M]) -> M:
    """The message in the part of this name, which is one of these kinds; raises WireError.

    limit: bytes that are accepted, of all parts together.
    """
    envelope.check_size(sum(len(part) for part in parts.values()), limit)
    if name not in parts:
        raise WireError(f"a message without the part '{name}'")
    facts, tensors = decode(parts[name], limit)
    kind = facts.get("kind")
    if not isinstance(kind, str) or kind not in kinds:
        raise WireError(f"a {name} of unknown kind {shown(kind)}")
    checks, make = kinds[kind]
    check_fields(facts, {**_HEADER, **checks}, name)
    header = Header(facts["request"], facts["run"], facts["site"])
    return make(Received(header, facts, tensors, parts, limit))


def check_fields(facts: Facts, checks: Mapping[str, Check], what: str) -> None:
    """Raise WireError unless the facts are these and no others."""
    problem = fields(checks)(facts, "")
    if problem is not None:
        raise WireError(f"a malformed {what}: {problem}")


def one_of(choices: Sequence[str]) -> Check:
    """A check for one of these texts."""
    listed = ", ".join(f"'{choice}'" for choice in choices)
    return lambda value, path: (
        None if value in choices else f"field '{path}' is {shown(value)}, and must be: {listed}"
    )


a_work = one_of(get_args(Work))


def check_different(numbers: Sequence[int], what: str) -> None:
    """Raise WireError if a number occurs twice."""
    if len(set(numbers)) < len(numbers):
        twice = next(n for n in numbers if numbers.count(n) > 1)
        raise WireError(f"a message with more than one {what} for number {twice}")


def numbered(items: Sequence[Mapping[str, Tensor]]) -> Params:
    """The tensors of several items as one flat dictionary; `split` is the inverse."""
    return {f"{i}\n{name}": t for i, item in enumerate(items) for name, t in item.items()}


def split(tensors: Mapping[str, Tensor], count: int) -> list[Params]:
    """The tensors of each of this many items."""
    indices = {str(i): i for i in range(count)}
    items: list[Params] = [{} for _ in range(count)]
    for path, tensor in tensors.items():
        index, _, name = path.partition("\n")
        if index not in indices:
            raise WireError(f"a message with the tensor {shown(path)}, which belongs to nothing")
        items[indices[index]][name] = tensor
    return items


def groups(tensors: Params, prefix: str) -> dict[str, Params]:
    """What `wire.flatten` was given with this prefix, except for groups without tensors."""
    try:
        return unflatten(tensors, prefix)
    except ValueError:
        raise WireError("a message with a tensor that belongs to no group") from None
