"""What a manifest must contain. Its checksum shows only that it is as somebody wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedloom.core import json_checks as must_be

_NAMES = must_be.different_names()
_FIELDS = must_be.fields(
    {
        "format": must_be.integer(),
        "round": must_be.integer(),
        "config_sha256": must_be.checksum(),
        "payload_sha256": must_be.checksum(),
        "weights_sha256": must_be.checksum(),
        "clients": must_be.fields({"count": must_be.integer(), "digest": must_be.checksum()}),
        "metrics": must_be.fields({"bytes": must_be.integer(), "sha256": must_be.checksum()}),
        "layout": must_be.fields(
            {
                "params": _NAMES,
                "shared": must_be.mapping_of(_NAMES),
                "memory": must_be.mapping_of(must_be.mapping_of(_NAMES)),
            }
        ),
        "made_with": must_be.mapping_of(must_be.text()),
        "threads": must_be.integer(1),
        "previous": must_be.optional(
            must_be.fields({"round": must_be.integer(), "sha256": must_be.checksum()})
        ),
        "extra": must_be.mapping_of(must_be.anything()),
    }
)
# the facts of the caller that are read again
_EXTRA: dict[str, must_be.Check] = {
    "engine": must_be.text(),
    "code": must_be.mapping_of(must_be.text()),
}


def manifest_problem(facts: Mapping[str, Any]) -> str | None:
    """What is wrong with the contents of a manifest whose checksum is right; None if nothing is."""
    if (reason := _FIELDS(facts, "")) is not None:
        return reason
    for name, check in _EXTRA.items():
        if name in facts["extra"] and (reason := check(facts["extra"][name], f"extra.{name}")):
            return reason
    previous = facts["previous"]
    if previous is not None and previous["round"] >= facts["round"]:
        return f"it follows round {previous['round']}, which is not before its own"
    return None
