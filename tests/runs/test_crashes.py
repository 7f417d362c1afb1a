"""Runs killed at every call that changes the disk: the last completed save is restored."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedloom.runs import client_store
from fedloom.runs.folder import RunFolder
from runs import toy
from runs.toy import Done

SOME_IN_FILES = 250  # bytes: one slot is in rows, the other in files


@pytest.fixture(params=["rows", "files"], autouse=True)
def place_of_memories(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clients' memories in rows of the database, and, as large ones, in files."""
    if request.param == "files":
        monkeypatch.setattr(client_store, "LARGE_BYTES", SOME_IN_FILES)


def assert_last_save(path: Path, reported: list[int], before: int) -> int:
    """Completed saves exist; an interrupted one may, if all of it reached the disk."""
    completed = reported[-1] if reported else before
    came_from = toy.assert_resumes(path, last=6)
    toy.assert_no_file_without_row(path)
    assert came_from in (completed, completed + 1)
    return came_from


def test_a_new_run_survives_a_kill_anywhere(disk: Path) -> None:
    starts = []
    for number, reported in enumerate(_killed_from_the_start(disk)):
        path = disk / str(number)
        if not (path / "config.toml").exists():
            RunFolder.create(path, toy.CONFIG).close()
        starts.append(assert_last_save(path, reported, before=0))
    assert set(starts) == {0, 1, 2} and len(starts) > 30


def _killed_from_the_start(disk: Path) -> Iterator[list[int]]:
    number = 0

    def work(done: Done) -> None:
        with RunFolder.create(disk / str(number), toy.CONFIG) as folder:
            assert folder.restore() is None
            toy.run_rounds(folder, 1, 2, done)

    for number, reported in enumerate(toy.crashes(work), 1):  # noqa: B007 (the next `work` reads it)
        yield reported


@pytest.mark.slow
def test_a_resumed_run_survives_a_kill_anywhere(disk: Path) -> None:
    base, starts = toy.made(disk / "base", 4), []
    path = disk / "run"

    def work(done: Done) -> None:
        with RunFolder.open(path) as folder:
            assert toy.restored_round(folder) == 4
            toy.run_rounds(folder, 5, 5, done)

    shutil.copytree(base, path)
    for reported in toy.crashes(work):
        starts.append(assert_last_save(path, reported, before=4))
        shutil.rmtree(path)
        shutil.copytree(base, path)
    assert set(starts) == {4, 5} and len(starts) > 20


def test_a_fall_back_survives_a_kill_anywhere(disk: Path) -> None:
    base, path, starts = toy.made(disk / "base", 4), disk / "run", []
    (base / "checkpoint/round-4.safetensors").write_bytes(b"damaged")

    def work(done: Done) -> None:
        with RunFolder.open(path) as folder:
            folder.restore()

    shutil.copytree(base, path)
    for _ in toy.crashes(work):
        starts.append(toy.assert_resumes(path, last=6))
        shutil.rmtree(path)
        shutil.copytree(base, path)
    assert set(starts) == {3} and len(starts) > 5


def test_a_save_is_made_durable_in_the_order_that_makes_it_safe(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    recorder = toy.Fuse(0, said.append)
    recorder.tick = said.append
    recorder.wire(monkeypatch.setattr, statements=True)
    with RunFolder.create(disk / "run", toy.CONFIG) as folder:
        toy.run_rounds(folder, 1, 3)
        said.clear()
        toy.run_rounds(folder, 4, 4)
    steps = [s for s in said if s in ("fsync", "replace", "unlink", "COMMIT")]
    durable_file = ["fsync", "replace", "fsync"]
    in_files = client_store.LARGE_BYTES == SOME_IN_FILES
    # two files are begun, then made durable with their names, before the rows that refer to them
    before = ["unlink", "unlink", "fsync", "replace", *durable_file] if in_files else []
    saved = ["COMMIT", "fsync", *durable_file, *durable_file, "unlink", "unlink", "COMMIT"]
    # and those of rows that are no more go after the rows
    assert steps == [*before, *saved, *(["unlink"] if in_files else [])]
