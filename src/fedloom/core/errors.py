"""Errors for users. A message names the thing, the value, the choices and the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MAX_CHOICES_SHOWN = 12


class UserError(ValueError):
    """Invalid input. The command line prints the message without a traceback and exits with 2."""


class RunError(RuntimeError):
    """A run cannot continue. Its last checkpoint stays valid; the command line exits with 1."""


def shortened(text: str, most: int = 500) -> str:
    """The text on one line, cut to this many characters: it may come from anywhere.

    >>> shortened("a\\nlong text", 7)
    'a lo...'
    """
    line = " ".join(text[: 4 * most].split())
    return line if len(line) <= most else f"{line[: most - 3]}..."


def did_you_mean(name: object, choices: Iterable[str]) -> str:
    """A question with the closest choice, to append to a message; empty if none is close."""
    closest = difflib.get_close_matches(str(name), choices, n=1, cutoff=0.5)
    return f"; did you mean '{closest[0]}'?" if closest else ""


def unknown_name(kind: str, name: object, choices: Iterable[str], see: str = "") -> UserError:
    """The error for a name that is not among the choices, with the closest one and where to look.

    >>> print(unknown_name("method", "fedporx", ["fedavg", "fedprox"], see="fedloom methods"))
    no method 'fedporx'; did you mean 'fedprox'? (choices: fedavg, fedprox; see: fedloom methods)
    """
    names = sorted(choices)
    shown = ", ".join(names[:_MAX_CHOICES_SHOWN])
    if len(names) > _MAX_CHOICES_SHOWN:
        shown += ", ..."
    where = f"; see: {see}" if see else ""
    return UserError(f"no {kind} '{name}'{did_you_mean(name, names)} (choices: {shown}{where})")


def raise_all(problems: Iterable[str], about: str) -> None:
    """Raise one UserError that lists all problems; do nothing if there are none."""
    listed = list(problems)
    if len(listed) == 1:
        raise UserError(f"{about}: {listed[0]}" if about else listed[0])
    if listed:
        lines = [f"{about}: {len(listed)} problems", *(f"  - {problem}" for problem in listed)]
        raise UserError("\n".join(lines))
