"""A run folder while it is written and read: rounds, saves, one writer, disk errors."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from fedloom.core.errors import RunError, UserError
from fedloom.core.state import ServerState
from fedloom.runs.folder import RunFolder
from fedloom.runs.lock import Lock
from runs import toy
from runs.toy import names


def test_saving_every_few_rounds(disk: Path) -> None:
    with RunFolder.create(disk / "run", toy.CONFIG) as folder:
        for round in range(1, 8):
            for client, memories in toy.new_memories(round).items():
                folder.store.remember(client, memories)
            folder.append_metrics(toy.line(round))
            if round % 3 == 0:
                folder.save(toy.state(round), best=round)
    with RunFolder.open(disk / "run") as folder:
        assert [line["round"] for line in folder.metrics()] == [1, 2, 3, 4, 5, 6, 7]
        assert toy.restored_round(folder) == 6


def test_the_same_round_may_be_saved_twice(disk: Path) -> None:
    with RunFolder.create(disk / "run", toy.CONFIG) as folder:
        toy.run_rounds(folder, 1, 2)
        folder.save(toy.state(2), best=2)
    assert toy.assert_resumes(disk / "run", last=3) == 2


def test_of_two_processes_that_create_one_folder_the_later_is_rejected(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = disk / "run"

    def after_the_other(place: Path) -> Lock:
        (path / "config.toml").write_text("theirs")
        return Lock(place)

    monkeypatch.setattr("fedloom.runs.folder.Lock", after_the_other)
    with pytest.raises(UserError, match="holds a run already"):
        RunFolder.create(path, toy.CONFIG)
    assert (path / "config.toml").read_text() == "theirs"


def test_a_folder_has_one_writer_at_a_time(run: Path) -> None:
    with (
        RunFolder.open(run),
        pytest.raises(UserError, match=f"is being written by process {os.getpid()}"),
    ):
        RunFolder.open(run)
    RunFolder.open(run).close()


def test_a_reader_sees_a_running_run(run: Path) -> None:
    with RunFolder.open(run) as folder:
        toy.restored_round(folder)
        for client, memories in toy.new_memories(6).items():
            folder.store.remember(client, memories)
        folder.store.commit(6)  # a save in progress
        folder.append_metrics(toy.line(6))
        reader = RunFolder.read_only(run)
        restored = reader.restore()
        assert restored is not None and restored.state.round == 5
        toy.assert_remembers(reader, toy.memories(5))
        assert [line["round"] for line in reader.metrics()] == [1, 2, 3, 4, 5, 6]
        for write in (
            lambda: reader.append_metrics({}),
            lambda: reader.save(toy.state(6)),
            lambda: reader.finish({}),
        ):
            with pytest.raises(RunError, match="was opened for reading"):
                write()


def test_edited_metrics_are_rejected_by_readers(run: Path) -> None:
    text = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text(text.replace("0.5", "0.9", 1))
    with pytest.raises(RunError, match=r"metrics.jsonl is damaged or was edited; `fedloom resume"):
        RunFolder.read_only(run).metrics()


def test_paths_that_collide_are_rejected(disk: Path) -> None:
    one = {"n": torch.ones(1)}
    state = ServerState(1, {}, {"a/b": {"c": one}, "a": {"b/c": one}})
    with (
        RunFolder.create(disk / "run", toy.CONFIG) as folder,
        pytest.raises(RunError, match="leave '/' out of the names"),
    ):
        folder.save(state)


def test_facts_that_are_not_json_are_rejected_before_anything_is_written(run: Path) -> None:
    before = names(run / "checkpoint")
    with RunFolder.open(run) as folder:
        folder.restore()
        with pytest.raises(TypeError):
            folder.save(toy.state(6), best=torch.ones(1))
    assert names(run / "checkpoint") == before


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_disk_error_at_any_write_leaves_the_last_checkpoint_intact(
    disk: Path, number: int
) -> None:
    """An error, not a crash, at the first sync, rename or deletion of a save, the second, ..."""

    def fail(what: str) -> None:
        raise OSError(number, os.strerror(number))

    starts = []
    for at in range(1, 100):
        path = toy.made(disk / f"{at}", 3)
        with RunFolder.open(path) as folder, pytest.MonkeyPatch.context() as patch:
            toy.restored_round(folder)
            toy.Fuse(at, fail).wire(patch.setattr, statements=False)
            try:
                toy.run_rounds(folder, 4, 4)
            except RunError as error:
                assert str(path) in str(error) and os.strerror(number).lower() in str(error)
            else:
                break
        starts.append(toy.assert_resumes(path, last=6))
    assert set(starts) == {3, 4} and len(starts) >= 9


def test_a_line_of_metrics_is_json(run: Path) -> None:
    lines: list[dict[str, Any]] = [
        json.loads(text) for text in (run / "metrics.jsonl").read_text().splitlines()
    ]
    assert lines == [toy.line(r) for r in range(1, 6)]
