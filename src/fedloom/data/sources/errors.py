"""The common form of a reader's error: where, what was found, what was expected, what to do."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fedloom.core.errors import UserError


def data_error(where: object, found: str, expected: str, remedy: str) -> UserError:
    """The error for data that do not have the expected content.

    >>> print(data_error("t10k-labels", "3 labels", "4", "download it again"))
    t10k-labels: found 3 labels, expected 4; download it again
    """
    one_line = " ".join(found.split())
    return UserError(f"{where}: found {one_line}, expected {expected}; {remedy}")


def missing_extra(task: str, library: str, extra: str) -> UserError:
    """The error for an optional library that is not installed."""
    return UserError(
        f"{task} needs {library}, which is not installed; "
        f'install it with: pip install "fedloom[{extra}]"'
    )


def folder_listing(folder: Path, limit: int = 8) -> str:
    """The names of a folder's files, shortened for an error message."""
    if not folder.is_dir():
        return "no folder"
    return shortened((path.name for path in sorted(folder.iterdir())), limit)


def shortened(names: Iterable[str], limit: int = 8) -> str:
    """The first `limit` names of a list, for an error message.

    >>> shortened("abc", 2), shortened([])
    ('a, b, ... (3 in total)', 'nothing')
    """
    everything = list(names)
    shown = ", ".join(everything[:limit])
    if len(everything) > limit:
        return f"{shown}, ... ({len(everything)} in total)"
    return shown or "nothing"
