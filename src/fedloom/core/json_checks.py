"""What a value read from a JSON file must be: small checks that are put together into larger ones.

A checksum shows that a file was not damaged; it does not show that its contents make sense. A check
takes a value and the path of its field, and returns the first thing that is wrong, or None.

>>> check = fields({"round": integer(low=1)}, {"scores": list_of(number())})
>>> check({"round": True}, "")
"field 'round' is True, and must be a whole number of at least 1"
>>> check({"round": 1, "scores": [0.5, float("nan")]}, "")
"field 'scores[1]' is nan, and must be a finite number"
>>> check({"scores": []}, "")
"field 'round' is missing or unknown"
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Check = Callable[[Any, str], str | None]

_LARGEST = 2**63 - 1  # what files, tensors and databases can count
_SHOWN = 60  # characters of a wrong value in a message


def integer(low: int = 0) -> Check:
    """A whole number of at least `low` that fits in 64 bits; true is not a number."""
    return _kind(
        f"a whole number of at least {low}",
        lambda v: isinstance(v, int) and not isinstance(v, bool) and low <= v <= _LARGEST,
    )


def number(low: float = -math.inf, high: float = math.inf) -> Check:
    """A finite number between low and high."""
    description = "a finite number" + _range(low, high)
    return _kind(description, lambda v: _is_number(v) and low <= v <= high)


def text() -> Check:
    return _kind("text", lambda v: isinstance(v, str))


def one_of(choices: Iterable[str]) -> Check:
    names = sorted(choices)
    return _kind(f"one of {', '.join(names)}", lambda v: isinstance(v, str) and v in names)


def boolean() -> Check:
    return _kind("true or false", lambda v: isinstance(v, bool))


def checksum() -> Check:
    """A sha256 in hexadecimal."""
    pattern = re.compile("[0-9a-f]{64}")
    return _kind(
        "a sha256 checksum", lambda v: isinstance(v, str) and pattern.fullmatch(v) is not None
    )


def anything() -> Check:
    return lambda value, path: None


def optional(check: Check) -> Check:
    """The value may also be null."""
    return lambda value, path: None if value is None else check(value, path)


def list_of(check: Check) -> Check:
    def problem(value: Any, path: str) -> str | None:
        if not isinstance(value, list):
            return _wrong(value, path, "a list")
        return _first(check(item, f"{path}[{i}]") for i, item in enumerate(value))

    return problem


def different_names() -> Check:
    """A list of texts, none of which occurs twice."""
    texts = list_of(text())

    def problem(value: Any, path: str) -> str | None:
        wrong = texts(value, path)
        if wrong is None and len(set(value)) < len(value):
            return f"field '{path}' has a name twice"
        return wrong

    return problem


def mapping_of(check: Check, name: str = "") -> Check:
    """An object whose values pass a check. name: a pattern for the names in it."""
    pattern = re.compile(name or "(?s:.*)")

    def problem(value: Any, path: str) -> str | None:
        if not isinstance(value, Mapping):
            return _wrong(value, path, "an object")
        odd = next((key for key in value if pattern.fullmatch(str(key)) is None), None)
        if odd is not None:
            return f"field '{path}' has the unknown entry '{_short(odd)}'"
        return _first(check(item, _inside(path, key)) for key, item in value.items())

    return problem


def fields(required: Mapping[str, Check], others: Mapping[str, Check] | None = None) -> Check:
    """An object with these fields and no more. others: fields that may be missing."""
    known = {**required, **(others or {})}

    def problem(value: Any, path: str) -> str | None:
        if not isinstance(value, Mapping):
            return _wrong(value, path, "an object")
        odd = [*(k for k in required if k not in value), *(k for k in value if k not in known)]
        if odd:
            return f"field '{_inside(path, odd[0])}' is missing or unknown"
        return _first(known[key](item, _inside(path, key)) for key, item in value.items())

    return problem


def _kind(description: str, is_right: Callable[[Any], bool]) -> Check:
    return lambda value, path: None if is_right(value) else _wrong(value, path, description)


def _wrong(value: Any, path: str, description: str) -> str:
    what = f"field '{path}'" if path else "it"
    return f"{what} is {_short(value)}, and must be {description}"


def _first(problems: Iterable[str | None]) -> str | None:
    return next((problem for problem in problems if problem is not None), None)


def _inside(path: str, key: object) -> str:
    return f"{path}.{_short(key)}" if path else _short(key)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= _LARGEST if isinstance(value, int) else math.isfinite(value)


def _range(low: float, high: float) -> str:
    if low == -math.inf:
        return "" if high == math.inf else f" of at most {high:g}"
    return f" of at least {low:g}" if high == math.inf else f" between {low:g} and {high:g}"


def _short(value: Any) -> str:
    """A value in a message, in at most a line."""
    if isinstance(value, int) and abs(value) > _LARGEST:
        return "a number of more than 64 bits"  # Python refuses to print the longest ones
    if isinstance(value, Mapping | list):
        return "an object" if isinstance(value, Mapping) else "a list"
    shown = "null" if value is None else str(value)
    return shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "..."
