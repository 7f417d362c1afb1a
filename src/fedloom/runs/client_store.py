"""The clients' memories in one SQLite file: a row per client, slot and round of writing.

The value of a large memory is in a file of its own (runs/memory_files.py), and its row holds an
empty text in its place.

Old versions stay until no kept checkpoint needs them, so that a run can roll back. Every row has a
checksum over its key and its value. A checkpoint records the sum of the checksums of all current
memories, which reveals a row that was lost, added, swapped or edited. The sum is updated row by
row: the cost of a commit depends on what it writes, not on the number of clients.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import torch

from fedloom.core.errors import RunError
from fedloom.core.params import Params
from fedloom.core.regular_files import check_folder, check_regular, open_regular
from fedloom.runs.durable_files import PRIVATE_FILE, file_error, sync_folder
from fedloom.runs.memory_files import MemoryFiles, NewFile
from fedloom.runs.tensor_bytes import MalformedTensors, pack, unpack

NEWEST = 2**62  # later than any round
LARGE_BYTES = 2**20  # of a memory that gets a file of its own
IN_FILE = ""  # the value of its row
_PAGE_BYTES = 16384  # writes memories of 5 KB to 2 MB about twice as fast as SQLite's default, 4096

_TABLE = """CREATE TABLE IF NOT EXISTS memory
            (client INTEGER NOT NULL, slot TEXT NOT NULL, round INTEGER NOT NULL,
            seal BLOB NOT NULL, value BLOB NOT NULL, PRIMARY KEY (client, slot, round))"""
# as the database lists it: the statement without IF NOT EXISTS, and the index of its key
_SCHEMA = {
    ("table", "memory"): " ".join(_TABLE.replace("IF NOT EXISTS ", "").split()),
    ("index", "sqlite_autoindex_memory_1"): "",
}
_SIDE_FILES = ("-wal", "-shm", "-journal")
_CURRENT = """SELECT slot, round, seal, value FROM memory AS m WHERE client = ?1 AND round =
              (SELECT max(round) FROM memory
               WHERE client = ?1 AND slot = m.slot AND round <= ?2) ORDER BY slot"""
_LAST = "SELECT round, seal FROM memory WHERE client = ? AND slot = ? ORDER BY round DESC LIMIT 1"
_REPLACED = """SELECT later, client, slot, round FROM (SELECT client, slot, round, lead(round)
               OVER (PARTITION BY client, slot ORDER BY round) AS later FROM memory)
               WHERE later IS NOT NULL ORDER BY later"""
_IN_FILES = "SELECT seal FROM memory WHERE value = ''"
_IN_FILE = f"{_IN_FILES} AND client = ? AND slot = ? AND round = ?"
_INSERT = "INSERT INTO memory VALUES (?, ?, ?, ?, ?)"
_DELETE = "DELETE FROM memory WHERE client = ? AND slot = ? AND round = ?"

_REMEDIES = {
    "SQLITE_FULL": "free some space, then `fedloom resume {0}`",
    "SQLITE_READONLY": "change its permissions, then `fedloom resume {0}`",
    "SQLITE_CANTOPEN": "it or its folder may be read-only or belong to someone else: "
    "change the permissions, then `fedloom resume {0}`",
    "SQLITE_IOERR": "check the disk, then `fedloom resume {0}`",
    "SQLITE_BUSY": "close the program that uses it, then `fedloom resume {0}`",
}


class DigestFacts(TypedDict):
    """A MemoryDigest, as a checkpoint stores it."""

    count: int
    digest: str


class StoreDamaged(RunError):
    """The database does not hold what was written. reason: a short phrase."""

    def __init__(self, path: Path, reason: str) -> None:
        self.reason, run = f"{path.name}: {reason}", path.parent
        super().__init__(
            f"{path}: {reason}; go back to an earlier checkpoint with `fedloom resume {run}`, "
            f"or start again with `fedloom run --config {run}/config.toml --out NEW`"
        )


@dataclass(frozen=True)
class MemoryDigest:
    """The number of current memories, and the sum of their checksums modulo 2^256.

    A sum does not depend on their order, and can be updated when one memory is replaced.
    """

    count: int = 0
    total: int = 0

    def plus(self, seal: bytes) -> MemoryDigest:
        return MemoryDigest(self.count + 1, (self.total + int.from_bytes(seal, "big")) % 2**256)

    def minus(self, seal: bytes) -> MemoryDigest:
        return MemoryDigest(self.count - 1, (self.total - int.from_bytes(seal, "big")) % 2**256)

    @property
    def facts(self) -> DigestFacts:
        """For JSON."""
        return {"count": self.count, "digest": f"{self.total:064x}"}


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
        self._files = MemoryFiles(path.with_suffix(""))
        self._db: sqlite3.Connection | None = None
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
        with self._readable_errors():
            for slot, new in pending.items():
                value = new if isinstance(new, bytes) else new.read()
                recalled[slot] = self._unpacked(client, slot, value)
        return recalled

    def _unpacked(self, client: int, slot: str, value: bytes) -> Params:
        try:
            return unpack(value, self._device)
        except MalformedTensors as error:
            raise StoreDamaged(
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
        with self._readable_errors():
            return self._files.write(value)

    def commit(self, round: int) -> MemoryDigest:
        """Make durable, as of this round, what was remembered since the last commit.

        Returns the digest of the memories that are current now.
        """
        digest, replaced = self._loaded_index()
        if self._pending:
            newly_replaced: list[ReplacedVersion] = []
            rows = list(self._new_rows(round))
            with self._transaction() as db:
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
        with self._readable_errors():
            for client, slot, value in pending:
                if isinstance(value, bytes):
                    yield client, slot, round, _row_seal(client, slot, round, value), value
                else:
                    seal = value.seal(_row_key(client, slot, round))
                    self._files.name(value, seal)
                    yield client, slot, round, seal, IN_FILE
            if any(isinstance(value, NewFile) for _, _, value in pending):
                self._files.sync()

    def digest(self, round: int) -> MemoryDigest:
        """The digest of the memories that were current at the end of a round.

        Every one of them is read and checked, in the same way as by `recall`.
        """
        digest = MemoryDigest()
        for (verdict,) in self._query("PRAGMA quick_check(1)"):
            if verdict != "ok":
                raise StoreDamaged(self.path, "its pages do not fit together")
        for (client,) in self._query("SELECT DISTINCT client FROM memory"):
            for _, seal, _ in self._current(client, round):
                digest = digest.plus(seal)
        return digest

    def read_as_of(self, round: int) -> None:
        """Recall the memories of this round from now on; later versions are not deleted."""
        self._as_of, self._pending = round, {}

    def rollback_to(self, round: int, digest: MemoryDigest) -> None:
        """Delete what was remembered after this round. The caller has checked its digest."""
        if self._connection() is not None:
            with self._transaction() as db:
                db.execute("DELETE FROM memory WHERE round > ?", (round,))
        self._pending = {}
        if not self._read_only:
            with self._readable_errors():
                self._files.keep_only([seal for (seal,) in self._query(_IN_FILES)])
        self.read_as_of(NEWEST)
        self._index = digest, self._replaced_versions()

    def prune(self, oldest: int) -> None:
        """Delete the versions that no checkpoint of this round or later can need."""
        digest, replaced = self._loaded_index()
        unneeded = [version[1:] for version in replaced if version.later <= oldest]
        if unneeded:
            with self._transaction() as db:
                in_files = [seal for key in unneeded for (seal,) in db.execute(_IN_FILE, key)]
                db.executemany(_DELETE, unneeded)
            with self._readable_errors():
                for seal in in_files:
                    self._files.delete(seal)
            self._index = digest, [version for version in replaced if version.later > oldest]

    def copy_from(self, other: SqliteStore) -> None:
        """Copy all memories of another store, row by row, into this one, which must be empty."""
        if other._connection() is not None:
            with self._transaction() as db:
                for row in other._query("SELECT client, slot, round, seal, value FROM memory"):
                    if row[-1] == IN_FILE:
                        self._files.name(self._files.write(other._files.read(row[-2])), row[-2])
                    db.execute(_INSERT, row)
                if check_folder(self._files.folder):
                    self._files.sync()
            self._index = None

    def close(self) -> None:
        """Merge the log into the main file, so that it can be copied and read without it."""
        if self._db is not None:
            # while a reader is active the log stays; nothing is lost
            with suppress(sqlite3.Error):
                self._db.execute("PRAGMA journal_mode = DELETE")
            self._db.close()
            self._db = None
        self._pending = {}

    def _current(self, client: int, round: int) -> Iterator[tuple[str, bytes, bytes]]:
        """Slot, checksum and value of the client's memories that were current in a round."""
        for slot, written, seal, stored in self._query(_CURRENT, (client, round)):
            value = self._large_value(client, slot, seal) if stored == IN_FILE else stored
            if not isinstance(value, bytes) or _row_seal(client, slot, written, value) != seal:
                raise StoreDamaged(
                    self.path, f"the memory '{slot}' of client {client} has a wrong checksum"
                )
            yield slot, seal, value

    def _large_value(self, client: int, slot: str, seal: Any) -> bytes:
        with self._readable_errors():
            try:
                return self._files.read(seal)
            except FileNotFoundError as error:
                raise StoreDamaged(
                    self.path, f"the file with the memory '{slot}' of client {client} is missing"
                ) from error

    def _loaded_index(self) -> tuple[MemoryDigest, list[ReplacedVersion]]:
        if self._index is None:
            self._index = self.digest(NEWEST), self._replaced_versions()
        return self._index

    def _replaced_versions(self) -> list[ReplacedVersion]:
        return [ReplacedVersion(*row) for row in self._query(_REPLACED)]

    def _connection(self) -> sqlite3.Connection | None:
        """The database, or None as long as there is none."""
        if self._db is None and self._is_written():
            db = _connect(self.path, "ro" if self._read_only else "rw")
            try:
                self._check_schema(db)
            except BaseException:
                db.close()
                raise
            self._db = db  # only now: nothing may be asked of a database that was not checked
        return self._db

    def _is_written(self) -> bool:
        """Whether the file exists and is not empty.

        Raises if it, or a file that SQLite keeps next to it, is a link or anything but a file.
        """
        for suffix in _SIDE_FILES:
            check_regular(self.path.with_name(self.path.name + suffix))
        return check_regular(self.path) and self.path.stat().st_size > 0

    def _check_schema(self, db: sqlite3.Connection) -> None:
        """Raise for a database that holds anything but our table.

        A view or a trigger of a stranger would be executed by our queries, and need not end.
        """
        db.execute("PRAGMA trusted_schema = OFF")
        for kind, name, sql in db.execute("SELECT type, name, sql FROM sqlite_master"):
            ours = (kind, name) in _SCHEMA and _one_line(sql) == _SCHEMA[kind, name]
            if not ours:
                raise StoreDamaged(
                    self.path, f"it holds a {kind} '{name}' that fedloom did not make"
                )

    def _query(self, sql: str, args: tuple[int, ...] = ()) -> Iterator[tuple[Any, ...]]:
        with self._readable_errors():
            db = self._connection()
            # `yield from` would close the cursor of a query that an error has cut short, which
            # fails once the database is closed
            for row in db.execute(sql, args) if db is not None else ():  # noqa: UP028
                yield row

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """All of it or nothing, and durable at the end."""
        with self._readable_errors():
            existing = self._connection()
            self._db = db = existing or _new_database(self.path)
            _set_up(db)
            if existing is None:
                sync_folder(self.path.parent)
            with db:
                yield db

    @contextmanager
    def _readable_errors(self) -> Iterator[None]:
        """Turn errors of the database into errors that name the file and the remedy."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._translated(error) from error
        except OSError as error:
            raise file_error(Path(error.filename or self.path), error) from error

    def _translated(self, error: sqlite3.Error) -> RunError:
        name = getattr(error, "sqlite_errorname", "")
        for prefix, remedy in _REMEDIES.items():
            if name.startswith(prefix):
                return RunError(f"{self.path}: {error}; {remedy.format(self.path.parent)}")
        return StoreDamaged(self.path, str(error))


def _row_seal(client: int, slot: str, round: int, value: bytes) -> bytes:
    """The checksum of a row. It covers the key, so that a damaged index cannot swap two rows."""
    digest = hashlib.sha256(_row_key(client, slot, round))
    digest.update(value)
    return digest.digest()


def _row_key(client: int, slot: str, round: int) -> bytes:
    return json.dumps([client, slot, round]).encode()


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    # an engine may recall the next client's memories from another thread, but only one at a time
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(uri, uri=True, check_same_thread=False)


def _new_database(path: Path) -> sqlite3.Connection:
    """An empty database; SQLite would let everyone read a file that it creates itself."""
    os.close(open_regular(path, os.O_WRONLY | os.O_CREAT, PRIVATE_FILE))
    return _connect(path, "rw")


def _one_line(sql: str | None) -> str:
    return " ".join((sql or "").split())


def _set_up(db: sqlite3.Connection) -> None:
    """Every commit reaches the disk.

    The table is created before the log, so that a file is empty or has its table.
    """
    db.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
    db.execute(_TABLE)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
