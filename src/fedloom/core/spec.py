"""Specs: a name with arguments, as text, as data, and checked against a function's signature.

Methods, models, partitions, samplers and augmentations are all plain functions with keyword
parameters. A user writes one as text, `fedprox(mu=0.1)`. `parse` turns the text into a `Spec`,
which is data: it can be saved in a run folder and sent to a worker. `call` checks the arguments and
calls the function.

A parameter's default, range and meaning are written in the signature (core/signature.py).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedloom.core.errors import UserError, did_you_mean, raise_all, shown, shown_text
from fedloom.core.signature import Param, Parameter, parameters, takes_any_name

__all__ = [
    "Param",
    "Parameter",
    "Spec",
    "argument_problems",
    "arguments",
    "call",
    "literal",
    "parameters",
    "parse",
]

# ------------------------------------------------------------------ text to data

_PLUS = re.compile(r"\+(?![^()]*\))")  # a plus that is not inside parentheses
_NAME_AND_ARGUMENTS = re.compile(r"\s*([^()]*[^()\s])\s*(?:\(([^()]*)\))?\s*")
_UNNAMED = re.compile(r"#([1-9][0-9]{0,3})")  # key of the n-th argument, if written without a name
_MAX_LITERAL = 4096  # characters; longer text is no number or list that a person has written
_KEYWORDS = {"true": True, "false": False, "none": None}


@dataclass(frozen=True)
class Spec:
    """A name with keyword arguments, as data."""

    name: str
    args: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """As on the command line: fedprox(mu=0.1)."""
        arguments = ", ".join(f"{name}={value}" for name, value in self.args.items())
        return f"{self.name}({arguments})" if arguments else self.name


def parse(text: str) -> list[Spec]:
    """The specs in a text such as `fedprox(mu=0.1)+fedavgm`.

    >>> [(spec.name, dict(spec.args)) for spec in parse("fedprox(mu=0.1)+fedavgm")]
    [('fedprox', {'mu': 0.1}), ('fedavgm', {})]
    """
    specs = []
    for piece in _PLUS.split(text):
        match = _NAME_AND_ARGUMENTS.fullmatch(piece)
        if match is None:
            raise UserError(
                f"'{shown_text(text)}' is not of the form name or name(parameter=value), "
                "nor name+name for methods; see: fedloom methods, fedloom models"
            )
        specs.append(Spec(match[1], arguments(match[2] or "")))
    return specs


def arguments(text: str) -> dict[str, Any]:
    """The keyword arguments written between parentheses.

    An argument without a name is stored under its position, since only the function's signature
    can tell its name; `argument_problems` rejects it with the name to write.
    """
    args: dict[str, Any] = {}
    pieces = [piece.strip() for piece in text.split(",")]
    for position, piece in enumerate(filter(None, pieces), 1):
        name, equals, value = (part.strip() for part in piece.partition("="))
        if not equals:
            name, value = f"#{position}", piece
        if name in args:
            raise UserError(
                f"argument '{shown_text(name)}' is given twice in '({shown_text(text)})'; "
                "give it once"
            )
        args[name] = literal(value)
    return args


def literal(text: str) -> Any:
    """The value of a Python literal, true, false or none; any other text is a string."""
    if text.lower() in _KEYWORDS:
        return _KEYWORDS[text.lower()]
    if len(text) > _MAX_LITERAL:
        return text
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return text  # the last two: thousands of signs or brackets


# ------------------------------------------------------------------ checked calls


def argument_problems(
    function: Callable[..., Any], args: Mapping[str, Any], skip: frozenset[str] = frozenset()
) -> list[str]:
    """Everything wrong with the arguments of a call.

    skip: parameters that the caller fills in, and that a user therefore cannot set. A function with
    **kwargs takes arguments of any name.
    """
    accepted = {n: p for n, p in parameters(function).items() if n not in skip}
    if takes_any_name(function):
        known = {*accepted, *skip}
        args = {n: value for n, value in args.items() if n in known or _UNNAMED.fullmatch(n)}
    return [*_problems_of_given(accepted, args), *_problems_of_missing(accepted, args)]


def _problems_of_given(accepted: Mapping[str, Parameter], args: Mapping[str, Any]) -> Iterator[str]:
    for name, value in args.items():
        if unnamed := _UNNAMED.fullmatch(name):
            yield _unnamed_problem(list(accepted), int(unnamed[1]), value)
        elif name not in accepted:
            choices = ", ".join(accepted) or "none"
            guess = did_you_mean(name, accepted)
            yield f"no parameter '{shown_text(name)}'{guess} (choices: {choices})"
        elif (problem := accepted[name].problem(value)) is not None:
            yield problem


def _unnamed_problem(names: list[str], position: int, value: Any) -> str:
    """The problem of an argument written without a name, as in fedprox(0.1) or fedprox(mu)."""
    if value in names:
        return f"argument '{value}' has no value; write {value}=VALUE"
    name = names[position - 1] if position <= len(names) else "NAME"
    text = shown_text(value) if isinstance(value, str) else shown(value)
    return f"argument {text} has no name; write {name}={text}"


def _problems_of_missing(
    accepted: Mapping[str, Parameter], args: Mapping[str, Any]
) -> Iterator[str]:
    if any(_UNNAMED.fullmatch(name) for name in args):
        return  # the missing parameter may be the one written without its name
    for name, parameter in accepted.items():
        if parameter.required and name not in args:
            yield f"parameter '{name}' is missing ({parameter.about.meaning})"


def call(
    kind: str, name: str, function: Callable[..., Any], args: Mapping[str, Any], /, **given: Any
) -> Any:
    """Call the function with the user's checked `args` and the caller's `given`.

    Raises UserError with every problem of the arguments at once; kind and name say what is called.
    """
    raise_all(argument_problems(function, args, frozenset(given)), f"{kind} '{name}'")
    return function(**given, **args)
