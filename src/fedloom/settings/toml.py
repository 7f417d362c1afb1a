"""Writes TOML; the standard library can only read it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def dumps(table: Mapping[str, Any]) -> str:
    """A nested mapping as TOML text. None values are left out, since TOML has no null.

    >>> print(dumps({"seed": 1, "train": {"lr": 0.1, "clip": None}}), end="")
    seed = 1
    <BLANKLINE>
    [train]
    lr = 0.1
    """
    return "\n".join(_lines(table, "")).lstrip("\n") + "\n"


def _lines(table: Mapping[str, Any], path: str) -> list[str]:
    """The lines of a table and of the tables in it; path is its dotted name, empty at the top."""
    subtables = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    lines = [
        f"{_key(key)} = {_value(value)}"
        for key, value in table.items()
        if key not in subtables and value is not None
    ]
    if path and lines:
        lines = ["", f"[{path}]", *lines]
    for key, subtable in subtables.items():
        lines += _lines(subtable, f"{path}.{_key(key)}" if path else _key(key))
    return lines


def _key(key: str) -> str:
    is_bare = key.replace("-", "").replace("_", "").isalnum() and key.isascii()
    return key if is_bare else _quoted(key)


def _quoted(text: str) -> str:
    # TOML's escapes are JSON's, except that JSON leaves the control character DEL as it is.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, Mapping):
        return _inline_table(value)
    return repr(value)


def _inline_table(table: Mapping[str, Any]) -> str:
    pairs = (f"{_key(key)} = {_value(v)}" for key, v in table.items() if v is not None)
    return "{" + ", ".join(pairs) + "}"
