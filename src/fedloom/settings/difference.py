"""In which setting two configs differ."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from fedloom.core.errors import shown
from fedloom.settings.config import Config


def first_difference(theirs: Config, ours: Config, ignore: Collection[str] = ()) -> str | None:
    """The first setting in which two configs differ, with both values; None if there is none."""
    names = [name for name in Config.model_fields if name not in ignore]
    then, now = theirs.model_dump(mode="json"), ours.model_dump(mode="json")
    for name in names:
        if then[name] != now[name]:
            path, old, new = _narrowed(name, then[name], now[name])
            return f"{path} is {shown(old)} there and {shown(new)} here"
    return None


def _narrowed(path: str, then: Any, now: Any) -> tuple[str, Any, Any]:
    """The first difference inside a table of settings."""
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        for name in {**then, **now}:
            if then.get(name) != now.get(name):
                return _narrowed(f"{path}.{name}", then.get(name), now.get(name))
    return path, then, now
