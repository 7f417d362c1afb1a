"""The parts of a message as Flower carries them; for both ends, and without torch.

A part becomes an Array with a type of our own, which Flower never interprets: it cuts the bytes
into pieces, names them by their content, and stores a piece that goes to several sites once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MESSAGE_TYPE = "query.fedloom"  # a ClientApp answers it with @app.query("fedloom")
_RECORD = "fedloom"
_TYPE = "fedloom.part"


class MalformedRecord(ValueError):
    """A message of Flower without our parts. The message is a phrase."""


def to_record(parts: Mapping[str, bytes]) -> Any:
    """The parts as the content of a message."""
    return record_of({name: array_of(data) for name, data in parts.items()})


def array_of(data: bytes) -> Any:
    """One part. An Array remembers its checksums, so keep that of a part that is sent again."""
    from flwr.app import Array

    return Array(dtype="uint8", shape=(len(data),), stype=_TYPE, data=bytes(data))


def record_of(arrays: dict[str, Any]) -> Any:
    """The parts that `array_of` made, as the content of a message."""
    from flwr.app import ArrayRecord, RecordDict

    return RecordDict({_RECORD: ArrayRecord(arrays)})


def from_record(content: Any, limit: int) -> dict[str, bytes]:
    """The parts in the content of a message; raises MalformedRecord.

    limit: bytes that are accepted, of all parts together.
    """
    if set(content) != {_RECORD} or _RECORD not in content.array_records:
        raise MalformedRecord(f"a message without the one record '{_RECORD}'")
    arrays = content.array_records[_RECORD]
    if any(array.stype != _TYPE for array in arrays.values()):
        raise MalformedRecord("a message with arrays that are not parts of a message of fedloom")
    size = sum(len(array.data) for array in arrays.values())
    if size > limit:
        raise MalformedRecord(f"a message of {size:,} bytes, and at most {limit:,} are accepted")
    return {name: array.data for name, array in arrays.items()}
