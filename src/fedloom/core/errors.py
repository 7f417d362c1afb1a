"""What a user is told when something does not fit: the thing, the value, the choices, the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Bad input, said in a sentence. The command line prints it without a traceback and exits with 2."""


class RunError(RuntimeError):
    """A run that could not go on, said in a sentence. The last checkpoint stands; the command line exits with 1."""


def unknown_name(kind: str, name: object, choices: Iterable[str], see: str = "") -> UserError:
    """The error for a name that is not among the choices, with the nearest one and where to look.

    >>> print(unknown_name("method", "fedporx", ["fedavg", "fedprox"], see="fedloom methods"))
    no method 'fedporx'; did you mean 'fedprox'? (choices: fedavg, fedprox; see: fedloom methods)
    """
    known = sorted(choices)
    near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
    guess = f"; did you mean '{near[0]}'?" if near else ";"
    shown = ", ".join(known[:12]) + (", ..." if len(known) > 12 else "")
    where = f"; see: {see}" if see else ""
    return UserError(f"no {kind} '{name}'{guess} (choices: {shown}{where})")


def raise_all(complaints: Iterable[str], about: str) -> None:
    """Raise every complaint in one error, or nothing."""
    found = list(complaints)
    if len(found) == 1:
        raise UserError(f"{about}: {found[0]}" if about else found[0])
    if found:
        raise UserError(
            "\n".join([f"{about}: {len(found)} problems", *(f"  - {c}" for c in found)])
        )
