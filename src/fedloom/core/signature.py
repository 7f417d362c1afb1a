"""The parameters of a function, read from its signature, and what is wrong with a value for one.

A parameter's default, range and meaning are written once, in the signature:

    def fedprox(mu: Annotated[float, Param("weight of the proximal term", low=0)] = 0.01): ...

`parameters` reads them from there, for the checks, the command line and the documentation.

A user's function may leave annotations out. Then the default says what a parameter takes: a number
for a number, true or false for a bool, text for text. Without a default that tells, it takes
anything but text: `mu=abc` is what a misspelt number looks like, so text has to be declared.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fedloom.core.errors import UserError, shown

# What a parameter takes that has neither an annotation nor a default that tells.
UNDECLARED = (bool, int, float, types.NoneType, list, tuple, dict)
# Types as messages call them.
_IN_WORDS = {"float": "a number", "int": "a whole number", "bool": "true or false", "str": "text"}
MAX_COUNT = 10**9  # of clients, rounds, samples, layers; more is a mistake


@dataclass(frozen=True)
class Param:
    """The meaning and range of a parameter, for use in Annotated.

    low and high are inclusive bounds, above and below exclusive ones. An integer without an
    upper bound is at most MAX_COUNT. fixed: a requirement, such as a guarantee of privacy, which
    tuning must leave alone.
    """

    meaning: str
    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    fixed: bool = False

    def violated_bounds(self, value: float) -> list[str]:
        """The bounds that the value violates, in words."""
        bounds = [
            (self.low, "at least", operator.ge),
            (self.above, "above", operator.gt),
            (self.high, "at most", operator.le),
            (self.below, "below", operator.lt),
        ]
        return [
            f"{words} {bound:g}"
            for bound, words, holds in bounds
            if bound is not None and not holds(value, bound)
        ]


@dataclass(frozen=True)
class Parameter:
    """One parameter of a function: what it accepts, its default, and its meaning.

    kinds: accepted types. choices: further accepted values, from Literal.
    """

    name: str
    kinds: tuple[type, ...]
    choices: tuple[Any, ...]
    default: Any
    about: Param

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty

    def describe(self) -> dict[str, Any]:
        """The parameter as JSON."""
        facts: dict[str, Any] = {
            "name": self.name,
            "type": " | ".join(self._accepted(none="null")),
            "meaning": self.about.meaning,
        }
        for bound in ("low", "high", "above", "below"):
            value = getattr(self.about, bound)
            if value is not None:
                facts[bound] = value
        if self.choices:
            facts["choices"] = list(self.choices)
        if not self.required:
            facts["default"] = self.default
        return facts

    def problem(self, value: Any) -> str | None:
        """Why the value is not accepted, or None."""
        if self.choices and value in self.choices:
            return None
        return self._problem_of_type(value) or self._problem_of_number(value)

    def _problem_of_type(self, value: Any) -> str | None:
        if self.kinds is UNDECLARED and isinstance(value, str):
            return (
                f"{self.name}={shown(value)} is text, and the function does not say that "
                f"{self.name} is; write {self.name}: str in its signature, or give a number"
            )
        if not self._has_accepted_type(value):
            accepted = " or ".join(
                _IN_WORDS.get(word, word) for word in self._accepted(none="none")
            )
            return f"{self.name}={shown(value)} must be {accepted}{self._why()}"
        if value is None and self.default is not None:
            # TOML has no null: the run would be stored, and resumed, with the default
            return f"{self.name}=none cannot be stored in a settings file; give another value"
        return None

    def _problem_of_number(self, value: Any) -> str | None:
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            return None
        if not -math.inf < value < math.inf:  # math.isfinite fails for an integer of 400 digits
            return f"{self.name}={value!r} must be finite{self._why()}"
        if violated := self.about.violated_bounds(value) or self._too_large(value):
            return f"{self.name}={shown(value)} must be {' and '.join(violated)}{self._why()}"
        return None

    def _why(self) -> str:
        return f" ({self.about.meaning})" if self.about.meaning else ""

    def _too_large(self, value: float) -> list[str]:
        """The bound of every integer, unless the parameter has one of its own."""
        bounded = self.about.high is not None or self.about.below is not None
        limit = MAX_COUNT if float not in self.kinds else 2**63
        if isinstance(value, int) and not bounded and abs(value) > limit:
            return [f"between {-limit} and {limit}"]
        return []

    def _has_accepted_type(self, value: Any) -> bool:
        if isinstance(value, bool):  # a bool is an int in Python, but not in a setting
            return bool in self.kinds or object in self.kinds
        return isinstance(value, self.kinds) or (float in self.kinds and isinstance(value, int))

    def _accepted(self, none: str) -> list[str]:
        """Choices and types in words; none: the word for None."""
        if self.kinds is UNDECLARED:
            return ["any"]
        kinds = [none if kind is type(None) else kind.__name__ for kind in self.kinds]
        return [*map(repr, self.choices), *kinds]


def parameters(function: Callable[..., Any]) -> dict[str, Parameter]:
    """The keyword parameters of a function by name, read from its signature.

    >>> def fedprox(mu: typing.Annotated[float, Param("0 is FedAvg", low=0)] = 0.01): ...
    >>> parameters(fedprox)["mu"].default
    0.01
    """
    signature = signature_of(function)
    try:
        hints = _hints(function)
    except Exception as error:  # annotations in quotes are evaluated, and that can fail in any way
        raise _unreadable(function, error) from error
    return {
        p.name: _parameter(p, hints[p.name]) if p.name in hints else _undeclared(p)
        for p in signature.parameters.values()
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    }


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """The signature of a user's function; raises UserError for one without, written in C."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise _unreadable(function, error) from error


def takes_any_name(function: Callable[..., Any]) -> bool:
    """Whether a function has **kwargs, as those of libraries that pass arguments on."""
    return any(p.kind is p.VAR_KEYWORD for p in signature_of(function).parameters.values())


def _unreadable(function: Callable[..., Any], error: Exception) -> UserError:
    name = getattr(function, "__name__", type(function).__name__)
    cause = f"{type(error).__name__}: {error}"
    return UserError(
        f"the parameters of '{name}' cannot be read ({cause}); "
        "fix its annotations, or write a Python function that calls it"
    )


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of the parameters; those of a class stand at its __init__."""
    annotated: Any = function
    while isinstance(annotated, functools.partial):
        annotated = annotated.func
    if isinstance(annotated, type):
        annotated = annotated.__init__  # type: ignore[misc]
    elif not inspect.isroutine(annotated):
        annotated = type(annotated).__call__
    return typing.get_type_hints(annotated, include_extras=True)


def _undeclared(parameter: inspect.Parameter) -> Parameter:
    """A parameter without an annotation; its default may say what it takes."""
    kinds: tuple[type, ...] = UNDECLARED
    for known in (bool, str):
        if isinstance(parameter.default, known):
            kinds = (known,)
    if kinds is UNDECLARED and isinstance(parameter.default, (int, float)):
        kinds = (float,)  # a default of 1 does not say that 0.5 is wrong
    if isinstance(parameter.default, (list, tuple)):
        kinds = (list, tuple)
    return Parameter(parameter.name, kinds, (), parameter.default, Param(""))


def _parameter(parameter: inspect.Parameter, hint: Any) -> Parameter:
    about = Param("")
    if typing.get_origin(hint) is typing.Annotated:
        hint, *extras = typing.get_args(hint)
        about = next((extra for extra in extras if isinstance(extra, Param)), about)
    kinds: list[type] = []
    choices: list[Any] = []
    for option in _union_members(hint):
        origin = typing.get_origin(option)
        if origin is typing.Literal:
            choices += typing.get_args(option)
        else:
            kind = origin or option
            known = isinstance(kind, type) and kind is not Any
            kinds.append(kind if known else object)  # object: Any, or a TypeVar
    return Parameter(parameter.name, tuple(kinds), tuple(choices), parameter.default, about)


def _union_members(hint: Any) -> tuple[Any, ...]:
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return typing.get_args(hint) if is_union else (hint,)
