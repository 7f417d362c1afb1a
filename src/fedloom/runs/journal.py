"""An append-only file of JSON lines that keeps track of its own length and checksum.

A checkpoint can record both without reading the file again.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypedDict

from fedloom.core.regular_files import open_regular
from fedloom.runs.durable_files import PRIVATE_FILE, file_error, read_if_exists, sha256


class Prefix(TypedDict):
    """The first bytes of a file, as a checkpoint records them."""

    bytes: int
    sha256: str


def begins_with(data: bytes, prefix: Prefix) -> bool:
    """Whether the data still begin as the checkpoint recorded."""
    length = prefix["bytes"]
    return len(data) >= length and sha256(data[:length]) == prefix["sha256"]


class Journal:
    """The file, open for writing. The lock of the folder ensures that there is one writer."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            descriptor = open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, PRIVATE_FILE)
            self._file = os.fdopen(descriptor, "ab", buffering=0)
        except OSError as error:
            raise file_error(path, error) from error
        self._count(read_if_exists(path) or b"")

    def _count(self, data: bytes) -> None:
        self._bytes, self._digest = len(data), hashlib.sha256(data)

    def append(self, record: Mapping[str, Any]) -> None:
        """Add one line, whole or not at all.

        It survives this process, and after `sync` a power cut as well.
        """
        line = json.dumps(record).encode() + b"\n"
        try:
            if self._file.write(line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            with suppress(OSError):
                self._file.truncate(self._bytes)
            raise file_error(self.path, error) from error
        self._bytes += len(line)
        self._digest.update(line)

    def sync(self) -> Prefix:
        """Make all lines durable; return their length and checksum."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise file_error(self.path, error) from error
        return {"bytes": self._bytes, "sha256": self._digest.hexdigest()}

    def truncate(self, length: int) -> None:
        """Drop everything after the first `length` bytes."""
        try:
            self._file.truncate(length)
        except OSError as error:
            raise file_error(self.path, error) from error
        self._count(read_if_exists(self.path) or b"")
        self.sync()

    def close(self) -> None:
        self._file.close()


def records(data: bytes) -> list[dict[str, Any]]:
    """The lines as dictionaries, up to the first unreadable one: a crash may tear the last line.

    The line of a round that was repeated replaces the earlier one.

    >>> records(b'{"round": 1, "loss": 2.5}\\n{"round": 1, "loss": 2.0}\\n{"round": 2, "lo')
    [{'round': 1, 'loss': 2.0}]
    """
    by_round: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(data.split(b"\n")[:-1]):
        record = _parse(line)
        if record is None:
            break
        by_round[str(record.get("round", f"line {number}"))] = record
    return list(by_round.values())


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None
