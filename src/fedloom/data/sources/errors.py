"""How every reader says what is wrong with a file: where, what was found, what was expected, what to do."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fedloom.core.errors import UserError


def bad(where: object, found: str, expected: str, remedy: str) -> UserError:
    """The error for a file that does not hold what it should.

    >>> print(bad("t10k-labels", "3 labels", "4", "download it again"))
    t10k-labels: found 3 labels, expected 4; download it again
    """
    return UserError(f"{where}: found {' '.join(found.split())}, expected {expected}; {remedy}")


def missing_extra(what: str, library: str, extra: str) -> UserError:
    """The error for an optional library that is not installed."""
    return UserError(
        f'{what} needs {library}, which is not installed; install it with: pip install "fedloom[{extra}]"'
    )


def listing(folder: Path, most: int = 8) -> str:
    """What a folder holds, for an error."""
    return (
        some((p.name for p in sorted(folder.iterdir())), most) if folder.is_dir() else "no folder"
    )


def some(names: Iterable[str], most: int = 8) -> str:
    """The first names of a list, for an error."""
    known = list(names)
    shown = ", ".join(known[:most])
    return (f"{shown}, ... ({len(known)} in all)" if len(known) > most else shown) or "nothing"
