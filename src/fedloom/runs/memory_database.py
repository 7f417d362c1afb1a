"""The SQLite file of the clients' memories: one table, and every commit reaches the disk.

What its rows mean is the business of runs/client_store.py. The file may come from someone else: if
it holds anything but our table, it is rejected before the first query. Errors name the file and the
remedy.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fedloom.core.errors import RunError
from fedloom.core.regular_files import check_regular, open_regular
from fedloom.runs.durable_files import PRIVATE_FILE, file_error, sync_folder

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

_REMEDIES = {
    "SQLITE_FULL": "free some space, then `fedloom resume {0}`",
    "SQLITE_READONLY": "change its permissions, then `fedloom resume {0}`",
    "SQLITE_CANTOPEN": "it or its folder may be read-only or belong to someone else: "
    "change the permissions, then `fedloom resume {0}`",
    "SQLITE_IOERR": "check the disk, then `fedloom resume {0}`",
    "SQLITE_BUSY": "close the program that uses it, then `fedloom resume {0}`",
}


class DatabaseDamaged(RunError):
    """The database does not hold what was written. reason: a short phrase."""

    def __init__(self, path: Path, reason: str) -> None:
        self.reason, run = f"{path.name}: {reason}", path.parent
        super().__init__(
            f"{path}: {reason}; go back to an earlier checkpoint with `fedloom resume {run}`, "
            f"or start again with `fedloom run --config {run}/config.toml --out NEW`"
        )


class MemoryDatabase:
    """The file, opened when it is first needed, and created with the first transaction."""

    def __init__(self, path: Path, read_only: bool = False) -> None:
        self.path, self._read_only = path, read_only
        self._db: sqlite3.Connection | None = None

    def exists(self) -> bool:
        """Whether something was written; it is open then, and its table is ours."""
        return self._connection() is not None

    def query(self, sql: str, args: tuple[int, ...] = ()) -> Iterator[tuple[Any, ...]]:
        """The rows of an answer; none as long as there is no database."""
        with self.readable_errors():
            db = self._connection()
            # `yield from` would close the cursor of a query that an error has cut short, which
            # fails once the database is closed
            for row in db.execute(sql, args) if db is not None else ():  # noqa: UP028
                yield row

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All of it or nothing, and durable at the end."""
        with self.readable_errors():
            existing = self._connection()
            self._db = db = existing or _new_database(self.path)
            _set_up(db)
            if existing is None:
                sync_folder(self.path.parent)
            with db:
                yield db

    @contextmanager
    def readable_errors(self) -> Iterator[None]:
        """Turn errors of SQLite and of files into errors that name the file and the remedy."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._translated(error) from error
        except OSError as error:
            raise file_error(Path(error.filename or self.path), error) from error

    def check_pages(self) -> None:
        """Raise if the pages of the file do not fit together."""
        for (verdict,) in self.query("PRAGMA quick_check(1)"):
            if verdict != "ok":
                raise DatabaseDamaged(self.path, "its pages do not fit together")

    def close(self) -> None:
        """Merge the log into the main file, so that it can be copied and read without it."""
        if self._db is not None:
            # while a reader is active the log stays; nothing is lost
            with suppress(sqlite3.Error):
                self._db.execute("PRAGMA journal_mode = DELETE")
            self._db.close()
            self._db = None

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
                raise DatabaseDamaged(
                    self.path, f"it holds a {kind} '{name}' that fedloom did not make"
                )

    def _translated(self, error: sqlite3.Error) -> RunError:
        name = getattr(error, "sqlite_errorname", "")
        for prefix, remedy in _REMEDIES.items():
            if name.startswith(prefix):
                return RunError(f"{self.path}: {error}; {remedy.format(self.path.parent)}")
        return DatabaseDamaged(self.path, str(error))


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
