"""Errors for users. A message names the thing, the value, the choices and the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MAX_CHOICES_SHOWN = 12
_MAX_LISTED = 30  # problems in one message
_MAX_SHOWN = 100  # characters of a user's value in a message


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


def shown(value: object) -> str:
    """A value of a user for a message: as Python writes it, in one short line.

    >>> shown(10**5000), shown("a" * 500)[40:60]
    ('an integer of about 5,001 digits', 'aaaaaaaaaa ... aaaaa')
    """
    if isinstance(value, int) and value.bit_length() > 1000:  # Python refuses to write long ones
        return f"an integer of about {int(value.bit_length() * 0.30103) + 1:,} digits"
    try:
        return shown_text(repr(value))
    except (ValueError, RecursionError):  # a table with such an integer, or nested too deeply
        return f"a {type(value).__name__}"


def shown_text(text: str) -> str:
    """Text of a user for a message: long text without its middle, and nothing unprintable.

    >>> shown_text("fed\\0prox")
    'fed\\\\x00prox'
    """
    if len(text) > _MAX_SHOWN:
        text = f"{text[: _MAX_SHOWN // 2]} ... {text[-_MAX_SHOWN // 2 :]}"
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def did_you_mean(name: object, choices: Iterable[str]) -> str:
    """A question with the closest choice, to append to a message; empty if none is close."""
    closest = difflib.get_close_matches(str(name)[:_MAX_SHOWN], choices, n=1, cutoff=0.5)
    return f"; did you mean '{closest[0]}'?" if closest else ""


def unknown_name(
    kind: str, name: object, choices: Iterable[str], see: str = "", place: object = ""
) -> UserError:
    """The error for a name that is not among the choices, with the closest one and where to look.

    place: where the choices are, such as a file.

    >>> print(unknown_name("method", "fedporx", ["fedavg", "fedprox"], see="fedloom methods"))
    no method 'fedporx'; did you mean 'fedprox'? (choices: fedavg, fedprox; see: fedloom methods)
    >>> print(unknown_name("column", "ages", ["age", "ill"], place="north.csv"))
    no column 'ages' in north.csv; did you mean 'age'? (choices: age, ill)
    """
    names = sorted(choices)
    listed = ", ".join(names[:_MAX_CHOICES_SHOWN]) or "none"
    if len(names) > _MAX_CHOICES_SHOWN:
        listed += ", ..."
    more = f"; see: {see}" if see else ""
    what = f"no {kind} '{shown_text(str(name))}'" + (f" in {place}" if place else "")
    return UserError(f"{what}{did_you_mean(name, names)} (choices: {listed}{more})")


def raise_all(problems: Iterable[str], about: str) -> None:
    """Raise one UserError that lists all problems; do nothing if there are none."""
    listed = list(problems)
    if len(listed) == 1:
        raise UserError(f"{about}: {listed[0]}" if about else listed[0])
    if listed:
        lines = [f"{about}: {len(listed)} problems", *(f"  - {p}" for p in listed[:_MAX_LISTED])]
        if len(listed) > _MAX_LISTED:
            lines.append(f"  - and {len(listed) - _MAX_LISTED:,} more")
        raise UserError("\n".join(lines))
