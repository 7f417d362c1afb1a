"""The contents of a manifest, which names everything that a checkpoint consists of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedloom.core import json_checks as must_be
from fedloom.core.identity import IDENTITY_CHECK, RunIdentity
from fedloom.runs.journal import Prefix
from fedloom.runs.memory_digest import DigestFacts

MANIFEST_FORMAT = 3


@dataclass(frozen=True)
class Manifest:
    """The contents of a manifest.

    frozen_sha256: of the file with the frozen weights; None if the model has none. clients: the
    digest of the clients' memories. metrics: length and checksum of the metrics so far. layout: the
    names of the server's tensors, in order. identity: what the rounds so far depend on besides the
    settings. previous: round and checksum of the manifest before this one. extra: facts of the
    caller.
    """

    format: int
    round: int
    config_sha256: str
    payload_sha256: str
    frozen_sha256: str | None
    weights_sha256: str
    clients: DigestFacts
    metrics: Prefix
    layout: dict[str, Any]
    identity: RunIdentity
    threads: int
    previous: dict[str, Any] | None
    extra: dict[str, Any] = field(default_factory=dict)


_NAMES = must_be.different_names()
_FIELDS = must_be.fields(
    {
        "format": must_be.integer(),
        "round": must_be.integer(),
        "config_sha256": must_be.checksum(),
        "payload_sha256": must_be.checksum(),
        "frozen_sha256": must_be.optional(must_be.checksum()),
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
        "identity": IDENTITY_CHECK,
        "threads": must_be.integer(1),
        "previous": must_be.optional(
            must_be.fields({"round": must_be.integer(), "sha256": must_be.checksum()})
        ),
        "extra": must_be.mapping_of(must_be.anything()),
    }
)
# the facts of the caller that are read again
_EXTRA: dict[str, must_be.Check] = {"engine": must_be.text()}


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


def read_manifest(facts: Mapping[str, Any]) -> Manifest:
    """The manifest from facts in which `manifest_problem` finds nothing."""
    return Manifest(**{**facts, "identity": RunIdentity.from_json(facts["identity"])})
