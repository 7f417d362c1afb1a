"""What a value of the settings may be, checked before anything else looks at it.

TOML, the command line and Python can all bring values that no setting takes: a date, a number of
5,000 digits, text with a zero byte, tables in tables in tables. They are rejected here, once, so
that later code can rely on tables, lists, text and numbers of a usual size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from numbers import Integral, Real
from typing import Any

from fedloom.core.errors import raise_all, shown, shown_text
from fedloom.core.spec import Spec

MAX_INTEGER = 2**63 - 1  # of 64 bits, as torch and NumPy count
MAX_TEXT = 4096  # characters; the longest path of a file
MAX_DEPTH = 8  # tables in tables; the deepest setting is train.schedule.factor
MAX_ITEMS = 10_000  # in one list or table

Path = tuple[str, ...]


def plain(raw: Mapping[str, Any], origin: str = "settings") -> dict[str, Any]:
    """A copy of the settings with Python's own numbers; raises UserError for any other value."""
    raise_all(_problems(raw, ()), origin)
    table: dict[str, Any] = _copied(raw)
    return table


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _copied(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_copied(inner) for inner in value]
    if isinstance(value, (bool, str, Spec)) or value is None:
        return value
    return int(value) if isinstance(value, Integral) else float(value)


def _problems(value: Any, path: Path) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from _problems_of_table(value, path)
    elif isinstance(value, (list, tuple)):
        yield from _problems_of_list(value, path)
    elif isinstance(value, Spec):
        yield from _problems({"name": value.name, **value.args}, path)
    elif problem := _problem_of_one(value):
        yield f"{_dotted(path)}{problem}"


def _problems_of_table(table: Mapping[Any, Any], path: Path) -> Iterator[str]:
    if len(path) >= MAX_DEPTH:
        yield f"{_dotted(path[:3])}is nested more than {MAX_DEPTH} tables deep; no setting is"
        return
    yield from _too_many(table, path)
    for name, value in table.items():
        if not isinstance(name, str):
            yield f"{_dotted(path)}the name {shown(name)} is not text; write it in quotes"
        elif problem := _problem_of_text(name):
            yield f"{_dotted(path)}the name {shown(name)}{problem}"
        else:
            yield from _problems(value, (*path, name))


def _problems_of_list(values: list[Any] | tuple[Any, ...], path: Path) -> Iterator[str]:
    if len(path) >= MAX_DEPTH:
        yield f"{_dotted(path[:3])}is nested more than {MAX_DEPTH} lists deep; no setting is"
        return
    yield from _too_many(values, path)
    for number, value in enumerate(values):
        if value is None:
            yield f"{_dotted((*path, str(number)))}none has no place in a list; leave it out"
        else:
            yield from _problems(value, (*path, str(number)))


def _too_many(values: Any, path: Path) -> Iterator[str]:
    if len(values) > MAX_ITEMS:
        yield f"{_dotted(path)}{len(values):,} entries are more than {MAX_ITEMS:,}; shorten it"


def _problem_of_one(value: Any) -> str | None:
    """What is wrong with a value that is no table and no list, or None."""
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, str):
        problem = _problem_of_text(value)
        return problem and f"{shown(value)}{problem}"
    if isinstance(value, Integral):
        if abs(int(value)) > MAX_INTEGER:
            return f"{shown(int(value))} is too large; the largest integer is {MAX_INTEGER}"
        return None
    if isinstance(value, Real):
        if not math.isfinite(float(value)):
            return f"{shown(float(value))} is not a finite number; write one"
        return None
    return (
        f"{shown(value)} is a {type(value).__name__}; "
        "a setting is text, a number, true or false, a list or a table"
    )


def _problem_of_text(text: str) -> str | None:
    if len(text) > MAX_TEXT:
        return (
            f" is {len(text):,} characters long, and at most {MAX_TEXT:,} are allowed; shorten it"
        )
    if "\0" in text:
        return " contains a zero byte; remove it"
    try:
        text.encode()
    except UnicodeEncodeError:
        return " is not valid Unicode; write it in UTF-8"
    return None


def _dotted(path: Path) -> str:
    """The name of a setting before a message; empty at the top."""
    return f"{shown_text('.'.join(path))}: " if path else ""
