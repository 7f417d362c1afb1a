"""Data sets added, replaced and removed by processes that are killed at any call to the disk."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from filelock import FileLock

from fedloom.core.errors import UserError
from fedloom.data import listing, staging, store
from fedloom.data.dataset import Dataset, Split
from fedloom.data.identity import data_identity
from runs import toy

CHANGES = ("fsync", "replace", "rename", "unlink", "rmdir", "mkdir")


def dataset(first: int) -> Dataset:
    x = torch.arange(first, first + 24, dtype=torch.float32).view(6, 4)
    train, test = Split(x[:4], torch.tensor([0, 1, 0, 1])), Split(x[4:], torch.tensor([0, 1]))
    return Dataset("d", "table", train, test, ("a", "b"), about={"first": str(first)})


OLD, NEW = dataset(0), dataset(100)


def killed_at_every_change(work: Callable[[], object]) -> Iterator[bool]:
    """The work in a forked process, killed at its first change of the disk, its second, ...

    Yields whether it was killed; the last time it was not.
    """
    for at in range(1, 200):

        def blown(done: toy.Done, at: int = at) -> None:
            fuse = toy.Fuse(at, lambda what: os._exit(9))
            for name in CHANGES:
                setattr(os, name, fuse._ticking(name, getattr(os, name)))
            work()

        status, _ = toy.in_child(blown)
        assert status in (0, 9)
        yield status == 9
        if status == 0:
            return
    raise AssertionError("the work has no end")


def found(root: Path) -> str | None:
    """Which of the two data sets is there, complete and as listed; None if there is none."""
    if "d" not in listing.names(root):
        return None
    loaded = data_identity(store.load("d", root))
    (which,) = [name for name, d in (("old", OLD), ("new", NEW)) if data_identity(d) == loaded]
    expected = {"old": OLD, "new": NEW}[which]
    assert listing.describe("d", root)["first"] == expected.about["first"]
    return which


def assert_tidy(root: Path) -> None:
    """No hidden folder and no file that info.json does not name."""
    assert {p.name for p in root.iterdir()} <= {".lock", "d"}
    if (root / "d").exists():
        assert len(list((root / "d").iterdir())) == 3


NEXT: dict[str, Callable[[Path], object]] = {
    "list": staging.clear_leftovers,
    "add": lambda root: store.save(NEW, root, replace=True),
    "remove": lambda root: store.remove("d", root),
}


@pytest.mark.parametrize("then", NEXT)
def test_a_replacement_survives_a_kill_anywhere(tmp_path: Path, then: str) -> None:
    root, outcomes = tmp_path / "data", []
    store.save(OLD, root)
    for was_killed in killed_at_every_change(lambda: store.save(NEW, root, replace=True)):
        outcomes.append(found(root))
        assert outcomes[-1] is not None and (was_killed or outcomes[-1] == "new")
        NEXT[then](root)
        assert_tidy(root)
        shutil.rmtree(root)
        store.save(OLD, root)
    assert set(outcomes) == {"old", "new"} and len(outcomes) > 15
    assert outcomes == sorted(outcomes, reverse=True), "there is one moment of change"


def test_a_first_addition_survives_a_kill_anywhere(tmp_path: Path) -> None:
    root, outcomes = tmp_path / "data", []
    for _ in killed_at_every_change(lambda: store.save(NEW, root)):
        outcomes.append(found(root))
        if outcomes[-1] is None:
            store.save(NEW, root)
        staging.clear_leftovers(root)
        assert_tidy(root)
        shutil.rmtree(root)
    assert set(outcomes) == {None, "new"} and len(outcomes) > 10


def test_a_removal_survives_a_kill_anywhere(tmp_path: Path) -> None:
    root, outcomes = tmp_path / "data", []
    store.save(OLD, root)
    for _ in killed_at_every_change(lambda: store.remove("d", root)):
        outcomes.append(found(root))
        staging.clear_leftovers(root)
        assert_tidy(root)
        store.save(OLD, root, replace=True)
    assert set(outcomes) == {None, "old"} and len(outcomes) > 5


def test_work_in_progress_of_another_process_is_left_alone(tmp_path: Path) -> None:
    from_child, to_us = os.pipe()
    from_us, to_child = os.pipe()
    if (child := os.fork()) == 0:
        with staging.staging_folder(tmp_path) as folder:
            (folder / "work").write_text("in progress")
            os.write(to_us, b"1")
            os.read(from_us, 1)
            os._exit(0 if (folder / "work").exists() else 1)  # as if killed: nothing is cleared
    os.read(from_child, 1)
    staging.clear_leftovers(tmp_path)
    store.save(NEW, tmp_path)
    os.write(to_child, b"1")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert any(p.name.startswith(staging.PREFIX) for p in tmp_path.iterdir())
    staging.clear_leftovers(tmp_path)
    assert_tidy(tmp_path)


def test_two_replacements_at_once_leave_one_of_them(tmp_path: Path) -> None:
    store.save(OLD, tmp_path)
    for _ in range(10):
        children = []
        for new in (NEW, OLD):
            if (child := os.fork()) == 0:
                try:
                    store.save(new, tmp_path, replace=True)
                    os._exit(0)
                finally:
                    os._exit(1)
            children.append(child)
        for child in children:
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert found(tmp_path) in ("old", "new")
        assert_tidy(tmp_path)


def test_an_addition_that_was_overtaken_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = store._write_files

    def overtaken(folder: Path, new: Dataset) -> None:
        write(folder, new)
        monkeypatch.undo()
        store.save(OLD, tmp_path)

    monkeypatch.setattr(store, "_write_files", overtaken)
    with pytest.raises(UserError, match="data set 'd' already exists"):
        store.save(NEW, tmp_path)
    assert found(tmp_path) == "old"
    assert_tidy(tmp_path)


def test_whoever_holds_the_lock_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{staging.PREFIX}killed").mkdir()
    monkeypatch.setattr(staging, "PATIENCE", 0.01)
    with FileLock(tmp_path / ".lock"):
        with pytest.raises(UserError, match="another process is changing the data sets in"):
            store.save(NEW, tmp_path)
        staging.clear_leftovers(tmp_path)  # a listing does not wait, and leaves it to others


def test_foreign_files_are_left_alone(tmp_path: Path) -> None:
    store.save(OLD, tmp_path)
    kept = [tmp_path / ".hidden" / "a", tmp_path / "d" / "notes.txt", tmp_path / "other" / "x"]
    for file in kept:
        file.parent.mkdir(exist_ok=True)
        file.write_text("mine")
    store.save(NEW, tmp_path, replace=True)
    staging.clear_leftovers(tmp_path)
    assert all(file.read_text() == "mine" for file in kept)
