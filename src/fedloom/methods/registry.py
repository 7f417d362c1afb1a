"""Every method by its name.

Each module of this folder is a method, built by the function with the module's name. A module may
list other names of the method as `ALIASES`. listing.py reads what needs no import.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from fedloom.core import user_code
from fedloom.core.compose import join
from fedloom.core.errors import UserError, raise_all
from fedloom.core.method import Method, Part
from fedloom.core.spec import Spec, complaints, parameters, parse
from fedloom.methods import listing


@dataclass(frozen=True)
class Entry:
    """A method as it is found: its factory, and what its module says of it."""

    name: str
    make: Callable[..., Method]
    paper: str
    link: str
    text: str

    @property
    def summary(self) -> str:
        """The first line of its documentation, without the name."""
        return listing.summary(self.text)

    @property
    def needs(self) -> list[str]:
        """What it asks of a model, in words."""
        return [n.text for n in self.make().needs] or ["any model"]

    def describe(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "name": self.name,
            "paper": self.paper,
            "link": self.link,
            "summary": self.summary,
            "parameters": [p.describe() for p in parameters(self.make).values()],
            "needs": self.needs,
        }


def names() -> list[str]:
    """The names of all methods of the package."""
    return list(listing.names())


def entry(name: str) -> Entry:
    """The method with this name or alias, or a user-defined one given as file.py:function."""
    if user_code.is_reference(name):
        make = user_code.load("method", name)
        return Entry(name, make, "user-defined", "", make.__doc__ or "")
    info = listing.describe(name)
    module = importlib.import_module(f"fedloom.methods.{info.module}")
    return Entry(info.name, getattr(module, info.module), info.paper, info.link, info.text)


def method(name: str | Callable[..., Method], **parameters: Any) -> Method:
    """A method with its parameters; add methods to combine them.

    name: a registered name, "file.py:function", or a function that returns a Method.

    >>> (method("fedprox", mu=0.1) + method("fedavgm")).name
    'fedprox+fedavgm'
    """
    if isinstance(name, str):
        first, *more = parse(name)
        return build([Spec(first.name, {**first.args, **parameters}), *more])
    reference = user_code.reference_to(name)
    if reference is not None:
        return build([Spec(reference, parameters)])
    label = getattr(name, "__name__", "method")
    raise_all(complaints(name, parameters), f"method '{label}'")
    return user_code.call_user_function("method", label, Method, name, parameters)


def build(specs: Sequence[Spec], values: Mapping[str, Method] = MappingProxyType({})) -> Method:
    """The combined method of the specs; every problem at once.

    values: by name, the methods that were passed as Python objects and that no name leads to.
    """
    makers = {s.name: entry(s.name) for s in specs if s.name not in values}
    if len({*(e.name for e in makers.values()), *values}) < len(specs):
        names = "+".join(s.name for s in specs)
        raise UserError(f"method '{names}' names a method twice; name each once")
    named = [s for s in specs if s.name in makers]
    raise_all(
        [f"{s.name}: {c}" for s in named for c in complaints(makers[s.name].make, s.args)], "method"
    )
    built = {s.name: _made(s, makers[s.name].make) for s in named}
    return join([values[s.name] if s.name in values else built[s.name] for s in specs])


def _made(spec: Spec, make: Callable[..., Method]) -> Method:
    """The method, which remembers the spec that any process can build it from."""
    if user_code.is_reference(spec.name):
        made = user_code.call_user_function("method", spec.name, Method, make, spec.args)
    else:
        made = make(**spec.args)
    return replace(made, origin=(Part(spec),))
