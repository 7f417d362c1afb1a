"""Every method by its name: a module of this folder is a method, and its function of the same name makes it.

A module may give further words for it as `ALSO`.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from fedloom.core import external
from fedloom.core.compose import join
from fedloom.core.errors import UserError, all_at_once, unknown
from fedloom.core.method import Method
from fedloom.core.words import Word, complaints, parameters

_PLUS = re.compile(r"\+(?![^()]*\))")
_WORD = re.compile(r"\s*([^()]*[^()\s])\s*(?:\(([^()]*)\))?\s*")


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
    return sorted(m.name.replace("_", "-") for m in pkgutil.iter_modules(here) if m.name != "registry")


def entry(name: str) -> Entry:
    """The method of that name, or a user's own as file.py:function."""
    if external.is_reference(name):
        make = external.load("method", name)
        return Entry(name, make, "your own", "", make.__doc__ or "")
    if name not in names():
        name = _other_word(name)
    module = _module(name)
    return Entry(name, getattr(module, name.replace("-", "_")), module.PAPER, module.LINK, module.__doc__ or "")


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"fedloom.methods.{name.replace('-', '_')}")


def _other_word(word: str) -> str:
    """The name of the method whose module has this word in `ALSO`."""
    others = {also: name for name in names() for also in getattr(_module(name), "ALSO", ())}
    if word not in others:
        raise unknown("method", word, [*names(), *others], see="fedloom methods")
    return others[word]


def parse(text: str) -> list[Word]:
    """The words of `fedprox(mu=0.1)+fedavgm`.

    >>> [(w.name, dict(w.args)) for w in parse("fedprox(mu=0.1)+fedavgm")]
    [('fedprox', {'mu': 0.1}), ('fedavgm', {})]
    """
    matches = [_WORD.fullmatch(piece) for piece in _PLUS.split(text)]
    if not all(matches):
        raise UserError(f"method '{text}' is not of the form name+name or name(parameter=value)+name; see: fedloom methods")
    return [Word(m[1], arguments(m[2] or "")) for m in matches if m]


def arguments(text: str) -> dict[str, Any]:
    """Keyword arguments as written between parentheses; what is not a Python literal is a string."""
    args: dict[str, Any] = {}
    for piece in filter(None, (p.strip() for p in text.split(","))):
        name, equals, value = piece.partition("=")
        if not equals:
            raise UserError(f"argument '{piece}' has no value; write {piece}=VALUE")
        if name.strip() in args:
            raise UserError(f"argument '{name.strip()}' is given twice in '({text})'; give it once")
        args[name.strip()] = literal(value.strip())
    return args


def literal(text: str) -> Any:
    """A value as a person types it."""
    plain = {"true": True, "false": False, "none": None}
    if text.lower() in plain:
        return plain[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def build(words: Sequence[Word]) -> Method:
    """The joined method of the words; every complaint at once."""
    entries: Mapping[str, Entry] = {w.name: entry(w.name) for w in words}
    if len({e.name for e in entries.values()}) < len(words):
        raise UserError(f"method '{'+'.join(w.name for w in words)}' names a method twice; name each once")
    all_at_once([f"{w.name}: {c}" for w in words for c in complaints(entries[w.name].make, w.args)], "method")
    return join([_made(w, entries[w.name].make) for w in words])


def _made(word: Word, make: Callable[..., Method]) -> Method:
    if not external.is_reference(word.name):
        return make(**word.args)
    return external.made("method", word.name, Method, make, word.args)
