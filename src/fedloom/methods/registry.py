"""Every method by its name: a module of this folder is a method, and its function of the same name makes it.

A module may give further words for it as `ALSO`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType, ModuleType
from typing import Any

from fedloom.core import user_code
from fedloom.core.compose import join
from fedloom.core.errors import UserError, raise_all, unknown_name
from fedloom.core.method import Method, Part
from fedloom.core.spec import Spec, complaints, parameters, parse


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
        return self.text.strip().partition("\n")[0].partition(": ")[2]

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
    """All methods of the package."""
    here = importlib.import_module("fedloom.methods").__path__
    return sorted(
        m.name.replace("_", "-") for m in pkgutil.iter_modules(here) if m.name != "registry"
    )


def entry(name: str) -> Entry:
    """The method of that name, or a user's own as file.py:function."""
    if user_code.is_reference(name):
        make = user_code.load("method", name)
        return Entry(name, make, "your own", "", make.__doc__ or "")
    if name not in names():
        name = _other_word(name)
    module = _module(name)
    return Entry(
        name,
        getattr(module, name.replace("-", "_")),
        module.PAPER,
        module.LINK,
        module.__doc__ or "",
    )


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"fedloom.methods.{name.replace('-', '_')}")


def _other_word(word: str) -> str:
    """The name of the method whose module has this word in `ALSO`."""
    others = {also: name for name in names() for also in getattr(_module(name), "ALSO", ())}
    if word not in others:
        raise unknown_name("method", word, [*names(), *others], see="fedloom methods")
    return others[word]


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
