"""The parts of a message as Flower carries them; for both ends, and without torch.

Flower sends every record, every array and every piece of an array in a request of its own, at each
of the four hops between ServerApp and worker. So small parts travel together, as the values of one
record. A large part becomes an Array with a type of our own, which Flower never interprets: it cuts
the bytes into pieces, names them by their content, and stores a piece that goes to several sites
once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

MESSAGE_TYPE = "query.fedloom"  # a ClientApp answers it with @app.query("fedloom")
SMALL = 2**20  # bytes of a part that travels with others
_SMALL_PARTS, _LARGE_PARTS = "fedloom", "fedloom.large"
_TYPE = "fedloom.part"


class MalformedRecord(ValueError):
    """A message of Flower without our parts. The message is a phrase."""


def array_of(data: bytes) -> Any:
    """A large part. An Array remembers its checksums, so keep that of a part that is sent again."""
    from flwr.app import Array

    return Array(dtype="uint8", shape=(len(data),), stype=_TYPE, data=bytes(data))


def to_record(
    parts: Mapping[str, bytes],
    array: Callable[[str, bytes], Any] = lambda name, data: array_of(data),
) -> Any:
    """The parts as the content of a message. array: makes the Array of a large one."""
    from flwr.app import ArrayRecord, ConfigRecord, RecordDict

    small = {name: bytes(data) for name, data in parts.items() if len(data) <= SMALL}
    large = {name: array(name, data) for name, data in parts.items() if len(data) > SMALL}
    record = RecordDict({_SMALL_PARTS: ConfigRecord(small)})
    if large:
        record[_LARGE_PARTS] = ArrayRecord(large)
    return record


def from_record(content: Any, limit: int) -> dict[str, bytes]:
    """The parts in the content of a message; raises MalformedRecord.

    limit: bytes that are accepted, of all parts together.
    """
    small, large = content.config_records, content.array_records
    expected = {_SMALL_PARTS} | set(large) & {_LARGE_PARTS}
    if _SMALL_PARTS not in small or set(content) != expected:
        raise MalformedRecord(f"a message without the one record '{_SMALL_PARTS}'")
    parts, arrays = dict(small[_SMALL_PARTS]), dict(large.get(_LARGE_PARTS, {}))
    if any(array.stype != _TYPE for array in arrays.values()) or parts.keys() & arrays.keys():
        raise MalformedRecord("a message with arrays that are not parts of a message of fedloom")
    parts |= {name: array.data for name, array in arrays.items()}
    if not all(isinstance(data, bytes) for data in parts.values()):
        raise MalformedRecord("a message with values that are not parts of a message of fedloom")
    size = sum(map(len, parts.values()))
    if size > limit:
        raise MalformedRecord(f"a message of {size:,} bytes, and at most {limit:,} are accepted")
    return parts
