"""An append-only file of JSON lines that knows its own length and checksum, so that a checkpoint can name both at no cost."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypedDict

from fedloom.runs.durable_files import failed, read, sha256


class Prefix(TypedDict):
    """The beginning of a file, as a checkpoint remembers it."""

    bytes: int
    sha256: str


def begins_with(data: bytes, said: Prefix) -> bool:
    """Whether the data still begin as the checkpoint says."""
    return len(data) >= said["bytes"] and sha256(data[: said["bytes"]]) == said["sha256"]


class Journal:
    """The writing end. One at a time; the lock of the folder sees to that."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise failed(path, error) from error
        self._start(read(path) or b"")

    def _start(self, data: bytes) -> None:
        self._bytes, self._digest = len(data), hashlib.sha256(data)

    def append(self, record: Mapping[str, Any]) -> None:
        """One more line, whole or not at all; it outlives this process, and after `sync` a power cut."""
        line = json.dumps(record).encode() + b"\n"
        try:
            if self._file.write(line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            with suppress(OSError):
                self._file.truncate(self._bytes)
            raise failed(self.path, error) from error
        self._bytes += len(line)
        self._digest.update(line)

    def sync(self) -> Prefix:
        """Make all lines durable; their length and checksum."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise failed(self.path, error) from error
        return {"bytes": self._bytes, "sha256": self._digest.hexdigest()}

    def cut(self, length: int) -> None:
        """Forget what stands behind the first `length` bytes."""
        try:
            self._file.truncate(length)
        except OSError as error:
            raise failed(self.path, error) from error
        self._start(read(self.path) or b"")
        self.sync()

    def close(self) -> None:
        self._file.close()


def records(data: bytes) -> list[dict[str, Any]]:
    """The lines as data, up to the first that cannot be read: a crash leaves a torn end.

    A line of a round that was done again stands in the place of the earlier one.

    >>> records(b'{"round": 1, "loss": 2.5}\\n{"round": 1, "loss": 2.0}\\n{"round": 2, "lo')
    [{'round': 1, 'loss': 2.0}]
    """
    by_round: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(data.split(b"\n")[:-1]):
        record = _record(line)
        if record is None:
            break
        by_round[str(record.get("round", f"line {number}"))] = record
    return list(by_round.values())


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None
