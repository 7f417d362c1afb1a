"""Writing TOML; reading it is in the standard library."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def dumps(table: Mapping[str, Any]) -> str:
    """A nested mapping as TOML text; None is left out, since TOML has no word for it.

    >>> print(dumps({"seed": 1, "train": {"lr": 0.1, "clip": None}}), end="")
    seed = 1
    <BLANKLINE>
    [train]
    lr = 0.1
    """
    return "\n".join(_lines(table, "")).lstrip("\n") + "\n"


def _lines(table: Mapping[str, Any], path: str) -> list[str]:
    plain = {k: v for k, v in table.items() if not isinstance(v, Mapping) and v is not None}
    lines = [f"{_key(k)} = {_value(v)}" for k, v in plain.items()]
    if path and lines:
        lines = ["", f"[{path}]", *lines]
    for key, inner in table.items():
        if isinstance(inner, Mapping):
            lines += _lines(inner, f"{path}.{_key(key)}" if path else _key(key))
    return lines


def _key(key: str) -> str:
    bare = key.replace("-", "").replace("_", "").isalnum() and key.isascii()
    return key if bare else _text(key)


def _text(text: str) -> str:
    """JSON's escapes are TOML's, but for the one control character that JSON lets through."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(v) for v in value) + "]"
    if isinstance(value, Mapping):
        return (
            "{"
            + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items() if v is not None)
            + "}"
        )
    return _text(value) if isinstance(value, str) else repr(value)
