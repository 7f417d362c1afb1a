"""Large memories in files: what is written, damage, planted files, and copies."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fedloom.core.errors import RunError
from fedloom.runs import client_store
from fedloom.runs.client_store import SqliteStore
from fedloom.runs.folder import RunFolder
from fedloom.runs.memory_database import DatabaseDamaged
from runs import toy


@pytest.fixture
def run(disk: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A toy run of five rounds with all memories in files."""
    monkeypatch.setattr(client_store, "LARGE_BYTES", 0)
    return toy.made(disk / "run", 5)


def test_only_large_memories_have_files(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_store, "LARGE_BYTES", 250)
    run = toy.made(disk / "run", 3)
    assert len(toy.names(run / "clients")) == sum(map(len, map(toy.new_memories, (1, 2, 3))))
    toy.assert_no_file_without_row(run)
    assert (run / "clients").stat().st_mode & 0o777 == 0o700
    assert {p.stat().st_mode & 0o777 for p in (run / "clients").iterdir()} == {0o600}
    assert not (toy.made(disk / "small", 0) / "clients").exists()


def test_a_memory_is_written_once(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite would write it to its log and then to its file."""
    monkeypatch.setattr(client_store, "LARGE_BYTES", 10_000)
    store = SqliteStore(disk / "clients.sqlite")
    large = {"z": toy.draw("large", shape=(500_000,))}
    store.remember(0, {"control": large})
    store.commit(1)
    sizes = [path.stat().st_size for path in disk.rglob("*") if path.is_file()]
    assert max(sizes) > 2_000_000 and sum(sizes) < 1.1 * max(sizes)
    toy.assert_same(store.recall(0)["control"], large)
    store.close()


def break_last_byte(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


def link_elsewhere(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (break_last_byte, "wrong checksum"),
        (Path.unlink, "is missing"),
        (link_elsewhere, "symbolic link"),
        (lambda path: path.unlink() or os.mkfifo(path), "named pipe"),
    ],
)
def test_a_damaged_or_planted_file_is_found(
    run: Path, damage: Callable[[Path], None], said: str
) -> None:
    store = SqliteStore(run / "clients.sqlite", read_only=True)
    newest = toy.new_memories(5)
    for path in list((run / "clients").iterdir()):
        damage(path)
    with pytest.raises(RunError, match=said):
        store.recall(min(newest))
    store.close()


def test_a_run_falls_back_if_a_file_of_its_last_checkpoint_is_damaged(run: Path) -> None:
    database = run / "clients.sqlite"
    before = set(toy.rows_in_files(database))
    with RunFolder.open(run) as folder:
        folder.restore()
        toy.run_rounds(folder, 6, 6)
    for seal in set(toy.rows_in_files(database)) - before:
        break_last_byte(run / "clients" / seal)
    assert toy.assert_resumes(run, last=7) == 5
    toy.assert_no_file_without_row(run)


def test_the_folder_may_not_be_a_link(run: Path, disk: Path) -> None:
    (run / "clients").rename(disk / "elsewhere")
    (run / "clients").symlink_to(disk / "elsewhere")
    kept = toy.names(disk / "elsewhere")
    with pytest.raises(RunError, match="symbolic link"), RunFolder.open(run) as folder:
        folder.restore()
    assert toy.names(disk / "elsewhere") == kept


@pytest.mark.parametrize("seal", [10**15, "text", b"short", b"x" * 5000])
def test_a_row_without_a_checksum_is_damage(run: Path, seal: object) -> None:
    store = SqliteStore(run / "clients.sqlite")
    with store._database.transaction() as db:
        db.execute("UPDATE memory SET seal = ?", (seal,))
    with pytest.raises(DatabaseDamaged, match="missing"):
        store.digest(5)
    store.close()


def test_files_of_others_are_left_alone(run: Path) -> None:
    (run / "clients/notes.txt").write_text("mine")
    (run / "clients/7.tmp").write_text("left by a kill")
    with RunFolder.open(run) as folder:
        assert toy.restored_round(folder) == 5
    assert (run / "clients/notes.txt").exists() and not (run / "clients/7.tmp").exists()


def test_a_copy_has_files_of_its_own(run: Path, disk: Path) -> None:
    source, target = SqliteStore(run / "clients.sqlite"), SqliteStore(disk / "clients.sqlite")
    target.copy_from(source)
    source.close()
    for path in (run / "clients").iterdir():
        path.unlink()
    for client, slots in toy.memories(5).items():
        for slot, params in slots.items():
            toy.assert_same(target.recall(client)[slot], params)
    target.close()


def test_a_staged_memory_is_written_once_and_leaves_nothing_if_it_is_dropped(run: Path) -> None:
    store = SqliteStore(run / "clients.sqlite")
    before, params = toy.names(run / "clients"), {"z": toy.draw("new")}
    dropped, kept = store.stage({"control": params}), store.stage({"control": params})
    written = set(toy.names(run / "clients")) - set(before)
    store.remember(0, kept)
    assert set(toy.names(run / "clients")) - set(before) == written
    toy.assert_same(store.recall(0)["control"], params)
    del dropped
    store.commit(6)
    assert len(toy.names(run / "clients")) == len(before) + 1
    toy.assert_no_file_without_row(run)
    store.close()


def test_a_memory_that_is_dropped_leaves_no_file(disk: Path, run: Path) -> None:
    store = SqliteStore(run / "clients.sqlite")
    for number in range(3):  # the last one counts
        store.remember(1, {"control": {"z": toy.draw(number)}})
    assert len([name for name in toy.names(run / "clients") if name.endswith(".tmp")]) == 1
    store.close()
    toy.assert_no_file_without_row(run)
