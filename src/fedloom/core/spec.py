"""A name and its arguments: how methods, models and partitions are written in a config and travel to a worker.

The arguments are those of a real function. Its signature, with `Annotated[float, Param(...)]`, is the only place where a
parameter's default, range and meaning are written; the command line, the checks and the documentation read it there.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import math
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedloom.core.errors import UserError, raise_all

_PLUS = re.compile(r"\+(?![^()]*\))")
_WORD = re.compile(r"\s*([^()]*[^()\s])\s*(?:\(([^()]*)\))?\s*")


@dataclass(frozen=True)
class Param:
    """What a parameter means and where it may lie; `above` is an exclusive lower bound."""

    meaning: str
    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None


@dataclass(frozen=True)
class Spec:
    """A name with keyword arguments, as data."""

    name: str
    args: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """As on the command line: fedprox(mu=0.1)."""
        arguments = ", ".join(f"{name}={value}" for name, value in self.args.items())
        return f"{self.name}({arguments})" if arguments else self.name


@dataclass(frozen=True)
class Parameter:
    """One parameter of a registered function, as documentation and as a check."""

    name: str
    kinds: tuple[type, ...]
    choices: tuple[Any, ...]
    default: Any
    about: Param

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty

    def describe(self) -> dict[str, Any]:
        """As JSON."""
        bounds = {
            k: getattr(self.about, k)
            for k in ("low", "high", "above", "below")
            if getattr(self.about, k) is not None
        }
        kind = " | ".join(
            [
                *map(repr, self.choices),
                *("null" if k is type(None) else k.__name__ for k in self.kinds),
            ]
        )
        facts: dict[str, Any] = {
            "name": self.name,
            "type": kind,
            "meaning": self.about.meaning,
            **bounds,
        }
        facts |= {"choices": list(self.choices)} if self.choices else {}
        return facts if self.required else {**facts, "default": self.default}

    def complaint(self, value: Any) -> str | None:
        """Why the value does not fit, or None."""
        if value in self.choices and self.choices:
            return None
        fits = isinstance(value, self.kinds) or (float in self.kinds and isinstance(value, int))
        if not fits or (isinstance(value, bool) and not {bool, object} & set(self.kinds)):
            kinds = ("none" if k is type(None) else k.__name__ for k in self.kinds)
            return (
                f"{self.name}={value!r} must be {' or '.join([*map(repr, self.choices), *kinds])}"
            )
        if isinstance(value, float) and not math.isfinite(value):
            return f"{self.name}={value!r} must be finite ({self.about.meaning})"
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return self._out_of_range(value)
        return None

    def _out_of_range(self, value: float) -> str | None:
        a = self.about
        bad = [
            f"at least {a.low:g}" if a.low is not None and not value >= a.low else "",
            f"above {a.above:g}" if a.above is not None and not value > a.above else "",
            f"at most {a.high:g}" if a.high is not None and not value <= a.high else "",
            f"below {a.below:g}" if a.below is not None and not value < a.below else "",
        ]
        said = " and ".join(b for b in bad if b)
        return f"{self.name}={value!r} must be {said} ({a.meaning})" if said else None


def parameters(function: Callable[..., Any]) -> dict[str, Parameter]:
    """The keyword parameters of a function, read off its signature.

    >>> def fedprox(mu: typing.Annotated[float, Param("stiffness; 0 is FedAvg", low=0)] = 0.01): ...
    >>> parameters(fedprox)["mu"].default
    0.01
    """
    hints = typing.get_type_hints(function, include_extras=True)
    return {
        p.name: _parameter(p, hints.get(p.name, Any))
        for p in inspect.signature(function).parameters.values()
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    }


def _parameter(p: inspect.Parameter, hint: Any) -> Parameter:
    about = Param("")
    if typing.get_origin(hint) is typing.Annotated:
        hint, *extras = typing.get_args(hint)
        about = next((e for e in extras if isinstance(e, Param)), about)
    options = (
        typing.get_args(hint)
        if typing.get_origin(hint) in (typing.Union, types.UnionType)
        else (hint,)
    )
    choices = tuple(
        c for o in options if typing.get_origin(o) is typing.Literal for c in typing.get_args(o)
    )
    plain = [o for o in options if typing.get_origin(o) is not typing.Literal]
    kinds = tuple(object if o is Any else (typing.get_origin(o) or o) for o in plain)
    return Parameter(p.name, kinds, choices, p.default, about)


def complaints(
    function: Callable[..., Any], args: Mapping[str, Any], skip: frozenset[str] = frozenset()
) -> list[str]:
    """Everything wrong with the arguments of a call, nearest names included; `skip` are filled in by the caller."""
    known = {n: p for n, p in parameters(function).items() if n not in skip}
    said: list[str] = []
    for name, value in args.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            guess = f"; did you mean '{near[0]}'?" if near else ";"
            said.append(f"no parameter '{name}'{guess} (choices: {', '.join(known) or 'none'})")
        elif (bad := known[name].complaint(value)) is not None:
            said.append(bad)
    said += [
        f"parameter '{n}' is missing ({p.about.meaning})"
        for n, p in known.items()
        if p.required and n not in args
    ]
    return said


def call(
    kind: str, name: str, function: Callable[..., Any], args: Mapping[str, Any], /, **given: Any
) -> Any:
    """Call the function with checked arguments; all complaints at once, before anything runs."""
    raise_all(complaints(function, args, frozenset(given)), f"{kind} '{name}'")
    return function(**given, **args)


def parse(text: str) -> list[Spec]:
    """The words of `fedprox(mu=0.1)+fedavgm`.

    >>> [(w.name, dict(w.args)) for w in parse("fedprox(mu=0.1)+fedavgm")]
    [('fedprox', {'mu': 0.1}), ('fedavgm', {})]
    """
    matches = [_WORD.fullmatch(piece) for piece in _PLUS.split(text)]
    if not all(matches):
        raise UserError(
            f"method '{text}' is not of the form name+name or name(parameter=value)+name; see: fedloom methods"
        )
    return [Spec(m[1], arguments(m[2] or "")) for m in matches if m]


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
