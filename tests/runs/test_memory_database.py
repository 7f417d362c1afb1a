"""The database of the memories: durable, one file when closed, and checked before it is used."""

from pathlib import Path

import pytest

from fedloom.core.errors import RunError
from fedloom.runs.memory_database import MemoryDatabase

ALL = "SELECT * FROM memory ORDER BY client"
ROWS = [(client, "control", 1, b"seal", bytes(9000)) for client in range(5)]


@pytest.fixture
def database(disk: Path) -> MemoryDatabase:
    database = MemoryDatabase(disk / "clients.sqlite")
    with database.transaction() as db:
        db.executemany("INSERT INTO memory VALUES (?, ?, ?, ?, ?)", ROWS)
    return database


def test_it_is_created_with_the_first_transaction(disk: Path) -> None:
    database = MemoryDatabase(disk / "clients.sqlite")
    database.check_pages()
    assert not database.exists() and list(database.query(ALL)) == []
    database.close()
    assert list(disk.iterdir()) == []


def test_rows_are_there_when_it_is_opened_again(database: MemoryDatabase) -> None:
    database.close()
    again = MemoryDatabase(database.path, read_only=True)
    assert again.exists() and list(again.query(ALL)) == ROWS
    again.close()


def test_every_commit_reaches_the_disk(database: MemoryDatabase) -> None:
    with database.transaction() as db:
        said = [
            db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")
        ]
    assert said == ["wal", 2]  # 2 is FULL: the log is synced at every commit


def test_closed_it_is_a_single_file(database: MemoryDatabase) -> None:
    database.close()
    assert [p.name for p in database.path.parent.iterdir()] == ["clients.sqlite"]
    # the header's format numbers: 2 would require a log file
    assert database.path.read_bytes()[18:20] == b"\x01\x01"


def test_a_free_list_that_would_overwrite_rows_is_detected(database: MemoryDatabase) -> None:
    """Every row can still be read, but new ones would overwrite them."""
    database.close()
    data = bytearray(database.path.read_bytes())
    # the header's list of free pages: page 2, one in all
    data[32:40] = (2).to_bytes(4, "big") + (1).to_bytes(4, "big")
    database.path.write_bytes(data)
    damaged = MemoryDatabase(database.path)
    assert list(damaged.query(ALL)) == ROWS
    with pytest.raises(RunError, match="its pages do not fit together"):
        damaged.check_pages()
    damaged.close()


def test_a_file_that_is_no_database_is_detected(disk: Path) -> None:
    (disk / "clients.sqlite").write_bytes(b"something else" * 100)
    with pytest.raises(
        RunError, match=r"clients\.sqlite: file is not a database; go back to an earlier"
    ):
        list(MemoryDatabase(disk / "clients.sqlite").query(ALL))
