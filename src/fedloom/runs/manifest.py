"""The contents of a manifest, which names everything that a checkpoint consists of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from fedloom.core.errors import RunError
from fedloom.core.identity import RunIdentity
from fedloom.runs.client_store import DigestFacts
from fedloom.runs.journal import Prefix

MANIFEST_FORMAT = 2


@dataclass(frozen=True)
class Manifest:
    """The contents of a manifest.

    clients: the digest of the clients' memories. metrics: length and checksum of the metrics so
    far. layout: the names of the server's tensors, in order. identity: what the rounds so far
    depend on besides the settings. previous: round and checksum of the manifest before this one.
    extra: facts of the caller.
    """

    format: int
    round: int
    config_sha256: str
    payload_sha256: str
    weights_sha256: str
    clients: DigestFacts
    metrics: Prefix
    layout: dict[str, Any]
    identity: RunIdentity
    threads: int
    previous: dict[str, Any] | None
    extra: dict[str, Any] = field(default_factory=dict)


def read_manifest(facts: Mapping[str, Any], place: str) -> Manifest:
    """The facts of a file as a manifest; raises a RunError if a field is missing or wrong."""
    known = {f.name for f in fields(Manifest)}
    if odd := sorted(known ^ facts.keys()):
        raise RunError(f"{place} is damaged: field '{odd[0]}' is missing or unknown")
    for name, is_valid in _VALID.items():
        if not is_valid(facts[name]):
            raise RunError(f"{place} is damaged: '{name}' is {str(facts[name])[:50]!r}")
    identity = RunIdentity.from_json(facts["identity"], f"{place}: identity")
    return Manifest(**{**facts, "identity": identity})


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_table(value: Any) -> bool:
    return isinstance(value, dict)


def _has(**checks: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """A check for tables with exactly these entries, each valid."""

    def check(value: Any) -> bool:
        return (
            isinstance(value, dict)
            and value.keys() == checks.keys()
            and all(is_valid(value[name]) for name, is_valid in checks.items())
        )

    return check


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_groups(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_names, value.values()))


def _is_memory(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_groups, value.values()))


_is_earlier = _has(round=_is_count, sha256=_is_text)
_VALID: Mapping[str, Callable[[Any], bool]] = {
    "round": _is_count,
    "config_sha256": _is_text,
    "payload_sha256": _is_text,
    "weights_sha256": _is_text,
    "clients": _has(count=_is_count, digest=_is_text),
    "metrics": _has(bytes=_is_count, sha256=_is_text),
    "layout": _has(params=_is_names, shared=_is_groups, memory=_is_memory),
    "threads": _is_count,
    "previous": lambda value: value is None or _is_earlier(value),
    "extra": _is_table,
}
