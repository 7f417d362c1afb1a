"""Records as JSON: written with their format version, and checked when they are read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import Field, fields, is_dataclass
from typing import Any

from fedloom.core.errors import RunError
from fedloom.metrics.client_scores import ClientScores
from fedloom.metrics.record_checks import is_required, record_check

FORMAT = 2  # of the records; another one is rejected when it is read
Json = dict[str, Any]


def to_json(record: Any) -> Json:
    """A record as JSON, with its format version.

    Fields that are None are left out, and numbers that are not finite, which JSON has no way to
    write, become null.
    """
    return {"format": FORMAT, **_plain(record)}


def _plain(value: Any) -> Any:
    """Dataclasses as dictionaries without their empty fields, mappings with text as keys."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no NaN
    if is_dataclass(value):
        items = {f: getattr(value, f.name) for f in fields(value)}
        return {f.name: _plain(item) for f, item in items.items() if _is_written(f, item)}
    return value


def _is_written(field: Field[Any], value: Any) -> bool:
    """None and empty collections are left out where they are what a reader assumes anyway."""
    return is_required(field) or (value is not None and value not in ((), {}))


def checked_fields(cls: Any, facts: Mapping[str, Any], place: str) -> Json:
    """The fields of a record, its scores as objects; raises for another format or wrong fields."""
    if facts.get("format") != FORMAT:
        raise RunError(
            f"{place} has record format {facts.get('format', 'none')}, and this version of fedloom "
            f"reads format {FORMAT}; use the version that wrote it"
        )
    given = {name: value for name, value in facts.items() if name != "format"}
    if (problem := record_check(cls)(given, "")) is not None:
        raise RunError(f"{place} is damaged: {problem}; restore the file from a copy")
    for name in ("global_model", "personal_models"):
        if given.get(name) is not None:
            given[name] = ClientScores.from_json(given[name])
    return given
