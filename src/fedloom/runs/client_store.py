"""The clients' memories: a row of a database per client, slot and round of writing.

The rows are in one SQLite file (runs/memory_database.py). The value of a large memory is in a file
of its own (runs/memory_files.py), and its row holds an empty text in its place.

Old versions stay until no kept checkpoint needs them, so that a run can roll back. Every row has a
checksum over its key and its value, and a checkpoint records their sum (runs/memory_digest.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from fedloom.core.params import Params
from fedloom.core.regular_files import check_folder
from fedloom.runs.memory_database import DatabaseDamaged, MemoryDatabase
from fedloom.runs.memory_digest import MemoryDigest, row_key, row_seal
from fedloom.runs.memory_files import MemoryFiles, NewFile
from fedloom.runs.tensor_bytes import MalformedTensors, pack, unpack

NEWEST = 2**62  # later than any round
LARGE_BYTES = 2**20  # of a memory that gets a file of its own
IN_FILE = ""  # the value of its row

_CURRENT = """SELECT slot, round, seal, value FROM memory AS m WHERE client = ?1 AND round =
              (SELECT max(round) FROM memory
               WHERE client = ?1 AND slot = m.slot AND round <= ?2) ORDER BY slot"""
_LAST = "SELECT round, seal FROM memory WHERE client = ? AND slot = ? ORDER BY round DESC LIMIT 1"
_REPLACED = """SELECT later, client, slot, round FROM (SELECT client, slot, round, lead(round)
               OVER (PARTITION BY client, slot ORDER BY round) AS later FROM memory)
               WHERE later IS NOT NULL ORDER BY later"""
_ALL = "SELECT client, slot, round, seal, value FROM memory"
_IN_FILES = "SELECT seal FROM memory WHERE value = ''"
_IN_FILE = f"{_IN_FILES} AND client = ? AND slot = ? AND round = ?"
_INSERT = "INSERT INTO memory VALUES (?, ?, ?, ?, ?)"
_DELETE = "DELETE FROM memory WHERE client = ? AND slot = ? AND round = ?"


class ReplacedVersion(NamedTuple):
    """A version of a memory that was replaced in the round `later`."""

    later: int
    client: int
    slot: str
    round: int


class SqliteStore:
    """A client store that survives its process.

    `recall` sees at once what `remember` was given; it is durable after `commit`. The file is
    created with the first memory: a method without memories has no file.
    """

    def __init__(
        self, path: Path, device: torch.device | str = "cpu", read_only: bool = False
    ) -> None:
        self.path, self._device, self._read_only = path, device, read_only
        self._database = MemoryDatabase(path, read_only)
        self._files = MemoryFiles(path.with_suffix(""))
        self._pending: dict[int, dict[str, bytes | NewFile]] = {}
        self._as_of = NEWEST
        # the digest of the current memories and all replaced versions; None: not read yet
        self._index: tuple[MemoryDigest, list[ReplacedVersion]] | None = None

    def recall(self, client: int) -> Mapping[str, Params]:
        """What the client remembers, by slot."""
        pending = self._pending.get(client, {})
        recalled = {
            slot: self._unpacked(client, slot, value)
            for slot, _, value in self._current(client, self._as_of)
            if slot not in pending
        }
        with self._database.readable_errors():
            for slot, new in pending.items():
                value = new if isinstance(new, bytes) else new.read()
                recalled[slot] = self._unpacked(client, slot, value)
        return recalled

    def _unpacked(self, client: int, slot: str, value: bytes) -> Params:
        try:
            return unpack(value, self._device)
        except MalformedTensors as error:
            raise DatabaseDamaged(
                self.path, f"the memory '{slot}' of client {client} cannot be read: {error}"
            ) from error

    def stage(self, memories: Mapping[str, Params]) -> Mapping[str, bytes | NewFile]:
        """These memories as they wait for `remember` and the next commit: large ones on the disk.

        If they are dropped, nothing is left of them.
        """
        return {slot: self._packed(params) for slot, params in memories.items()}

    def remember(
        self, client: int, memories: Mapping[str, Params] | Mapping[str, bytes | NewFile]
    ) -> None:
        """Replace these slots of the client, and no others; the memories may have been staged."""
        for slot, value in memories.items():
            staged = value if isinstance(value, bytes | NewFile) else self._packed(value)
            self._pending.setdefault(client, {})[slot] = staged

    def _packed(self, params: Params) -> bytes | NewFile:
        value = pack(params)
        if len(value) < LARGE_BYTES:
            return value
        with self._database.readable_errors():
            return self._files.write(value)

    def commit(self, round: int) -> MemoryDigest:
        """Make durable, as of this round, what was remembered since the last commit.

        Returns the digest of the memories that are current now.
        """
        digest, replaced = self._loaded_index()
        if self._pending:
            newly_replaced: list[ReplacedVersion] = []
            rows = list(self._new_rows(round))
            with self._database.transaction() as db:
                for client, slot, _, seal, value in rows:
                    if (last := db.execute(_LAST, (client, slot)).fetchone()) is not None:
                        digest = digest.minus(last[1])
                        newly_replaced.append(ReplacedVersion(round, client, slot, last[0]))
                    digest = digest.plus(seal)
                    db.execute(_INSERT, (client, slot, round, seal, value))
            self._pending, self._index = {}, (digest, replaced + newly_replaced)
        return digest

    def _new_rows(self, round: int) -> Iterator[tuple[int, str, int, bytes, bytes | str]]:
        """The rows of what is pending, in order. Their files are durable at the end."""
        pending = [
            (client, slot, value)
            for client, memories in sorted(self._pending.items())
            for slot, value in sorted(memories.items())
        ]
        with self._database.readable_errors():
            for client, slot, value in pending:
                if isinstance(value, bytes):
                    yield client, slot, round, row_seal(client, slot, round, value), value
                else:
                    seal = value.seal(row_key(client, slot, round))
                    self._files.name(value, seal)
                    yield client, slot, round, seal, IN_FILE
            if any(isinstance(value, NewFile) for _, _, value in pending):
                self._files.sync()

    def digest(self, round: int) -> MemoryDigest:
        """The digest of the memories that were current at the end of a round.

        Every one of them is read and checked, in the same way as by `recall`.
        """
        digest = MemoryDigest()
        self._database.check_pages()
        for (client,) in self._database.query("SELECT DISTINCT client FROM memory"):
            for _, seal, _ in self._current(client, round):
                digest = digest.plus(seal)
        return digest

    def read_as_of(self, round: int) -> None:
        """Recall the memories of this round from now on; later versions are not deleted."""
        self._as_of, self._pending = round, {}

    def rollback_to(self, round: int, digest: MemoryDigest) -> None:
        """Delete what was remembered after this round. The caller has checked its digest."""
        if self._database.exists():
            with self._database.transaction() as db:
                db.execute("DELETE FROM memory WHERE round > ?", (round,))
        self._pending = {}
        if not self._read_only:
            with self._database.readable_errors():
                self._files.keep_only([seal for (seal,) in self._database.query(_IN_FILES)])
        self.read_as_of(NEWEST)
        self._index = digest, self._replaced_versions()

    def prune(self, oldest: int) -> None:
        """Delete the versions that no checkpoint of this round or later can need."""
        digest, replaced = self._loaded_index()
        unneeded = [version[1:] for version in replaced if version.later <= oldest]
        if unneeded:
            with self._database.transaction() as db:
                in_files = [seal for key in unneeded for (seal,) in db.execute(_IN_FILE, key)]
                db.executemany(_DELETE, unneeded)
            with self._database.readable_errors():
                for seal in in_files:
                    self._files.delete(seal)
            self._index = digest, [version for version in replaced if version.later > oldest]

    def copy_from(self, other: SqliteStore) -> None:
        """Copy all memories of another store, row by row, into this one, which must be empty."""
        if other._database.exists():
            with self._database.transaction() as db:
                for row in other._database.query(_ALL):
                    if row[-1] == IN_FILE:
                        self._files.name(self._files.write(other._files.read(row[-2])), row[-2])
                    db.execute(_INSERT, row)
                if check_folder(self._files.folder):
                    self._files.sync()
            self._index = None

    def close(self) -> None:
        """Close the database. What was remembered since the last commit is lost."""
        self._database.close()
        self._pending = {}

    def _current(self, client: int, round: int) -> Iterator[tuple[str, bytes, bytes]]:
        """Slot, checksum and value of the client's memories that were current in a round."""
        for slot, written, seal, stored in self._database.query(_CURRENT, (client, round)):
            value = self._large_value(client, slot, seal) if stored == IN_FILE else stored
            if not isinstance(value, bytes) or row_seal(client, slot, written, value) != seal:
                raise DatabaseDamaged(
                    self.path, f"the memory '{slot}' of client {client} has a wrong checksum"
                )
            yield slot, seal, value

    def _large_value(self, client: int, slot: str, seal: Any) -> bytes:
        with self._database.readable_errors():
            try:
                return self._files.read(seal)
            except FileNotFoundError as error:
                raise DatabaseDamaged(
                    self.path, f"the file with the memory '{slot}' of client {client} is missing"
                ) from error

    def _loaded_index(self) -> tuple[MemoryDigest, list[ReplacedVersion]]:
        if self._index is None:
            self._index = self.digest(NEWEST), self._replaced_versions()
        return self._index

    def _replaced_versions(self) -> list[ReplacedVersion]:
        return [ReplacedVersion(*row) for row in self._database.query(_REPLACED)]
