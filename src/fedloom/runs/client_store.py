"""The clients' memories in one SQLite file. A memory is a row for each client, slot and round in which it was made.

Old versions stay until no kept checkpoint needs them, so that a run can go back. A row is sealed with a checksum over whose
it is and what it holds; a checkpoint names the sum of the seals of all memories in force, which tells a row that was lost,
added, swapped or edited. The sum is kept up to date row by row: a commit costs what it writes, whatever the number of clients.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import torch

from fedloom.core.errors import RunError
from fedloom.core.params import Params
from fedloom.runs.durable_files import failed, sync_folder
from fedloom.runs.tensor_bytes import pack, unpack

NEWEST = 2**62
_PAGE = 16384  # bytes; memories of 5 KB to 2 MB are written about twice as fast as with SQLite's 4096

_TABLE = """CREATE TABLE IF NOT EXISTS memory (client INTEGER NOT NULL, slot TEXT NOT NULL, round INTEGER NOT NULL,
            seal BLOB NOT NULL, value BLOB NOT NULL, PRIMARY KEY (client, slot, round))"""
_IN_FORCE = """SELECT slot, round, seal, value FROM memory AS m WHERE client = ?1 AND round =
               (SELECT max(round) FROM memory WHERE client = ?1 AND slot = m.slot AND round <= ?2) ORDER BY slot"""
_LAST = "SELECT round, seal FROM memory WHERE client = ? AND slot = ? ORDER BY round DESC LIMIT 1"
_REPLACED = """SELECT later, client, slot, round FROM (SELECT client, slot, round, lead(round)
               OVER (PARTITION BY client, slot ORDER BY round) AS later FROM memory) WHERE later IS NOT NULL ORDER BY later"""

_REMEDIES = {
    "SQLITE_FULL": "free some space, then `fedloom resume {0}`",
    "SQLITE_READONLY": "change its permissions, then `fedloom resume {0}`",
    "SQLITE_CANTOPEN": "it or its folder may be read-only or not yours: change the permissions, then `fedloom resume {0}`",
    "SQLITE_IOERR": "look at the disk, then `fedloom resume {0}`",
    "SQLITE_BUSY": "close the program that holds it, then `fedloom resume {0}`",
}


class Facts(TypedDict):
    """The memories in force, as a checkpoint writes them down."""

    count: int
    digest: str


class Damaged(RunError):
    """What was read is not what was written; what: in a few words."""

    def __init__(self, path: Path, what: str) -> None:
        self.what, run = f"{path.name}: {what}", path.parent
        super().__init__(
            f"{path}: {what}; go back with `fedloom resume {run}`, or start again with "
            f"`fedloom run --config {run}/config.toml --out NEW`"
        )


@dataclass(frozen=True)
class Stock:
    """The memories in force: how many, and the sum of their seals modulo 2^256, in which their order plays no part."""

    count: int = 0
    total: int = 0

    def plus(self, seal: bytes) -> Stock:
        return Stock(self.count + 1, (self.total + int.from_bytes(seal, "big")) % 2**256)

    def minus(self, seal: bytes) -> Stock:
        return Stock(self.count - 1, (self.total - int.from_bytes(seal, "big")) % 2**256)

    @property
    def facts(self) -> Facts:
        """As JSON."""
        return {"count": self.count, "digest": f"{self.total:064x}"}


class Replaced(NamedTuple):
    """A version that a later round has replaced."""

    later: int
    client: int
    slot: str
    round: int


class SqliteStore:
    """A client store that survives its process. What is remembered counts at once, and is durable after `commit`.

    The file is made with the first memory: a method without any pays nothing.
    """

    def __init__(self, path: Path, device: torch.device | str = "cpu", read_only: bool = False) -> None:
        self.path, self._device, self._read_only = path, device, read_only
        self._db: sqlite3.Connection | None = None
        self._pending: dict[int, dict[str, bytes]] = {}
        self._until = NEWEST
        self._books: tuple[Stock, list[Replaced]] | None = None

    def recall(self, client: int) -> Mapping[str, Params]:
        """What the client remembers, by slot."""
        fresh = self._pending.get(client, {})
        kept = {slot: value for slot, _, value in self._in_force(client, self._until) if slot not in fresh}
        return {slot: unpack(value, self._device) for slot, value in {**kept, **fresh}.items()}

    def remember(self, client: int, memories: Mapping[str, Params]) -> None:
        """Replace these slots of the client, and no others."""
        if memories:
            self._pending.setdefault(client, {}).update({slot: pack(params) for slot, params in memories.items()})

    def commit(self, round: int) -> Stock:
        """Make durable, as of this round, what was remembered since the last commit; the memories now in force."""
        stock, replaced = self._stocktaking()
        if self._pending:
            fresh: list[Replaced] = []
            with self._writing() as db:
                for client, slot, value in self._in_order():
                    if (last := db.execute(_LAST, (client, slot)).fetchone()) is not None:
                        stock = stock.minus(last[1])
                        fresh.append(Replaced(round, client, slot, last[0]))
                    seal = _seal(client, slot, round, value)
                    stock = stock.plus(seal)
                    db.execute("INSERT INTO memory VALUES (?, ?, ?, ?, ?)", (client, slot, round, seal, value))
            self._pending, self._books = {}, (stock, replaced + fresh)
        return stock

    def _in_order(self) -> Iterator[tuple[int, str, bytes]]:
        for client, memories in sorted(self._pending.items()):
            yield from ((client, slot, value) for slot, value in sorted(memories.items()))

    def stock(self, round: int) -> Stock:
        """The memories in force at the end of a round, each of them read and checked, as `recall` reads them."""
        stock = Stock()
        for (found,) in self._query("PRAGMA quick_check(1)"):
            if found != "ok":
                raise Damaged(self.path, "its pages do not fit together")
        for (client,) in self._query("SELECT DISTINCT client FROM memory"):
            for _, seal, _ in self._in_force(client, round):
                stock = stock.plus(seal)
        return stock

    def look_back(self, round: int) -> None:
        """Recall as of this round from now on; later versions stay where they are."""
        self._until, self._pending = round, {}

    def rollback_to(self, round: int, stock: Stock) -> None:
        """Forget for good what was remembered after this round, of which the caller has checked the stock."""
        if self._connection() is not None:
            with self._writing() as db:
                db.execute("DELETE FROM memory WHERE round > ?", (round,))
        self.look_back(NEWEST)
        self._books = stock, self._replaced()

    def prune(self, oldest: int) -> None:
        """Drop the versions that no checkpoint from this round on can need."""
        stock, replaced = self._stocktaking()
        doomed = [r[1:] for r in replaced if r.later <= oldest]
        if doomed:
            with self._writing() as db:
                db.executemany("DELETE FROM memory WHERE client = ? AND slot = ? AND round = ?", doomed)
            self._books = stock, [r for r in replaced if r.later > oldest]

    def take_over(self, other: SqliteStore) -> None:
        """All memories of another store, row by row, into this one, which has none yet."""
        if other._connection() is not None:
            with self._writing() as db:
                rows = other._query("SELECT client, slot, round, seal, value FROM memory")
                db.executemany("INSERT INTO memory VALUES (?, ?, ?, ?, ?)", rows)
            self._books = None

    def close(self) -> None:
        """Fold the log into the one file, so that it can be read on its own and from anywhere."""
        if self._db is not None:
            with suppress(sqlite3.Error):  # a reader that is still at it keeps the log; nothing is lost
                self._db.execute("PRAGMA journal_mode = DELETE")
            self._db.close()
            self._db = None

    def _in_force(self, client: int, round: int) -> Iterator[tuple[str, bytes, bytes]]:
        for slot, made, seal, value in self._query(_IN_FORCE, (client, round)):
            if not isinstance(value, bytes) or _seal(client, slot, made, value) != seal:
                raise Damaged(self.path, f"the memory '{slot}' of client {client} has a wrong checksum")
            yield slot, seal, value

    def _stocktaking(self) -> tuple[Stock, list[Replaced]]:
        if self._books is None:
            self._books = self.stock(NEWEST), self._replaced()
        return self._books

    def _replaced(self) -> list[Replaced]:
        return [Replaced(*row) for row in self._query(_REPLACED)]

    def _connection(self) -> sqlite3.Connection | None:
        """The database, or None as long as there is none."""
        if self._db is None and self.path.exists() and self.path.stat().st_size > 0:
            self._db = _opened(self.path, "ro" if self._read_only else "rw")
        return self._db

    def _query(self, sql: str, args: tuple[int, ...] = ()) -> Iterator[tuple[Any, ...]]:
        with self._speaking():
            db = self._connection()
            yield from db.execute(sql, args) if db is not None else ()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction: all of it or nothing, and durable at the end."""
        with self._speaking():
            old = self._connection()
            self._db = db = old or _opened(self.path, "rwc")
            _make_ready(db)
            if old is None:
                sync_folder(self.path.parent)
            with db:
                yield db

    @contextmanager
    def _speaking(self) -> Iterator[None]:
        """Errors of the database, in a sentence."""
        try:
            yield
        except sqlite3.Error as error:
            name = getattr(error, "sqlite_errorname", "")
            remedy = next((r for start, r in _REMEDIES.items() if name.startswith(start)), None)
            if remedy is None:
                raise Damaged(self.path, str(error)) from error
            raise RunError(f"{self.path}: {error}; {remedy.format(self.path.parent)}") from error
        except OSError as error:
            raise failed(self.path, error) from error


def _seal(client: int, slot: str, round: int, value: bytes) -> bytes:
    """The checksum of a row. It covers whose row it is, so that no damage to an index can pass one off as another."""
    digest = hashlib.sha256(json.dumps([client, slot, round]).encode())
    digest.update(value)
    return digest.digest()


def _opened(path: Path, mode: str) -> sqlite3.Connection:
    # an engine may ask for the next client's memory from a thread of its own, while nobody else does
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True, check_same_thread=False)


def _make_ready(db: sqlite3.Connection) -> None:
    """Every commit shall reach the disk. The table comes before the log, so that a file is empty or has its table."""
    db.execute(f"PRAGMA page_size = {_PAGE}")
    db.execute(_TABLE)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
