"""A message on the unix socket between a site's ClientApp and its worker. Standard library only.

    4 bytes    b"fdlm"
    2 bytes    number of parts; then for each of them
    2 bytes    length of its name, and the name in UTF-8
    8 bytes    length of its content, and the content

Numbers are little-endian. Lengths are checked before anything is read or reserved.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path

START = b"fdlm"
MAX_PARTS, MAX_NAME = 8, 64
PIECE = 1 << 20  # bytes read at once
CONNECT_SECONDS = 10.0


class BadFrame(ValueError):
    """Bytes that are no message, or one that is too large. The message is a phrase."""


class Disconnected(ConnectionError):
    """The other side closed the connection."""


def send(connection: socket.socket, parts: Mapping[str, bytes]) -> None:
    """Send a message."""
    connection.sendall(START + struct.pack("<H", len(parts)))
    for name, content in parts.items():
        encoded = name.encode()
        connection.sendall(struct.pack("<H", len(encoded)) + encoded)
        connection.sendall(struct.pack("<Q", len(content)))
        connection.sendall(content)


def receive(
    connection: socket.socket, limit: int, deadline: float = float("inf")
) -> dict[str, bytes]:
    """The next message. limit: bytes of all contents together. deadline: of time.monotonic()."""
    if _read(connection, len(START), deadline) != START:
        raise BadFrame("bytes that are no message")
    (count,) = struct.unpack("<H", _read(connection, 2, deadline))
    if count > MAX_PARTS:
        raise BadFrame(f"a message of {count} parts, and at most {MAX_PARTS} are accepted")
    parts: dict[str, bytes] = {}
    for _ in range(count):
        name = _name(connection, deadline)
        (size,) = struct.unpack("<Q", _read(connection, 8, deadline))
        total = size + sum(map(len, parts.values()))
        if total > limit:
            raise BadFrame(f"a message of {total:,} bytes, and at most {limit:,} are accepted")
        parts[name] = _read(connection, size, deadline)
    return parts


def _name(connection: socket.socket, deadline: float) -> str:
    (size,) = struct.unpack("<H", _read(connection, 2, deadline))
    if size > MAX_NAME:
        raise BadFrame("a message with a part whose name is too long")
    try:
        return _read(connection, size, deadline).decode()
    except UnicodeDecodeError:
        raise BadFrame("a message with a part whose name is no text") from None


def _read(connection: socket.socket, size: int, deadline: float) -> bytes:
    """Exactly this many bytes; memory is taken as they come, not as they are announced."""
    data = bytearray()
    while len(data) < size:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("a message that did not arrive in time")
        connection.settimeout(None if left == float("inf") else left)
        piece = connection.recv(min(PIECE, size - len(data)))
        if not piece:
            raise Disconnected("the connection ended within a message")
        data += piece
    return bytes(data)


def ask(path: Path | str, parts: Mapping[str, bytes], limit: int) -> dict[str, bytes]:
    """Send a message to the worker at this socket and wait for its answer, however long it takes.

    Raises OSError if there is no worker or it ends, BadFrame if it does not speak as we do.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(CONNECT_SECONDS)
        connection.connect(str(path))
        connection.settimeout(None)
        send(connection, parts)
        return receive(connection, limit)
