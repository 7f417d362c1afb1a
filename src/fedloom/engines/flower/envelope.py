"""Facts and tensors as bytes with a checksum, and back, bit for bit. Nothing is pickled.

    offset   bytes
    0        8       b"fedloom" and the version of the protocol in one byte
    8        32      sha256 of everything that follows
    40       8       length of the facts, little-endian
    48       ...     the facts: a JSON object in UTF-8
    ...      ...     the tensors: safetensors, with their order (runs/tensor_bytes.py)

`decode` takes bytes from anywhere. It raises WireError, whose message is a phrase such as "a
message whose checksum is wrong", and nothing else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import Tensor

from fedloom.core.params import Params
from fedloom.engines.wire import Facts, WireError, parse
from fedloom.runs import tensor_bytes

PROTOCOL = 1  # server and sites must have the same
_NAME = b"fedloom"
_CHECKSUM = slice(8, 40)
_FACTS = 48  # where they begin


class Message(NamedTuple):
    """What `encode` was given; in facts, tuples have become lists."""

    facts: Facts
    tensors: Params


def encode(facts: Mapping[str, Any], tensors: Mapping[str, Tensor] | None = None) -> bytes:
    """The message as bytes; WireError if something in it cannot be sent."""
    try:
        text = json.dumps(facts).encode()
        body = tensor_bytes.pack(tensors or {})
    except Exception as error:  # of json or safetensors, for values that methods of users make
        raise WireError(f"a message that cannot be sent: {error}") from error
    rest = b"".join((len(text).to_bytes(8, "little"), text, body))
    return b"".join((_NAME, bytes([PROTOCOL]), hashlib.sha256(rest).digest(), rest))


def decode(data: bytes, limit: int) -> Message:
    """The message in these bytes. limit: bytes that are accepted, checked before anything else."""
    check_size(len(data), limit)
    _check_start(data)
    rest = memoryview(data)[_CHECKSUM.stop :]
    if hashlib.sha256(rest).digest() != data[_CHECKSUM]:
        raise WireError("a message whose checksum is wrong")
    end = _FACTS + int.from_bytes(data[_CHECKSUM.stop : _FACTS], "little")
    if end > len(data):
        raise WireError("a message that is cut short")
    facts = parse(data[_FACTS:end])
    try:
        return Message(facts, tensor_bytes.unpack(data[end:]))
    except tensor_bytes.MalformedTensors as error:
        raise WireError(f"a message with malformed tensors: {error}") from error


def _check_start(data: bytes) -> None:
    if len(data) < _FACTS or data[: len(_NAME)] != _NAME:
        raise WireError("bytes that are not a message of fedloom")
    version = data[len(_NAME)]
    if version != PROTOCOL:
        raise WireError(
            f"a message of protocol {version}, and this version of fedloom speaks {PROTOCOL}; "
            "install the same version of fedloom at the server and at all sites"
        )


def check_size(size: int, limit: int) -> None:
    """Raise WireError for a message that is too large to be read."""
    if size > limit:
        raise WireError(f"a message of {size:,} bytes, and at most {limit:,} are accepted")


def checksum(data: bytes) -> str:
    """The checksum that an encoded message carries, by which another message refers to it."""
    return data[_CHECKSUM].hex()
