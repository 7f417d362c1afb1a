"""A run folder from its creation to its result."""

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedloom.core.errors import RunError, UserError
from fedloom.core.state import ServerState
from fedloom.runs import checkpoint
from fedloom.runs.durable_files import seal, sha256
from fedloom.runs.folder import FORMAT, RunFolder
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


def test_other_versions_cause_a_warning(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = checkpoint.made_with()
    other = replace(now, torch="9.9", cpu="VSX", python="4.0", source="0" * 64)
    monkeypatch.setattr(checkpoint, "made_with", lambda: other)
    with RunFolder.open(run) as folder:
        restored = folder.restore()
    assert restored is not None and restored.state.round == 5
    source, *others = restored.warnings
    assert f"with fedloom source {now.source[:12]}, and this is fedloom source {12 * '0'}" in source
    versions = {"torch": now.torch, "Python": now.python, "CPU": now.cpu}
    for (what, then), warning in zip(versions.items(), others, strict=True):
        assert f"was made with {what} {then}, and this is {what}" in warning
        assert "last bits" in warning


def test_existing_files_are_not_overwritten(run: Path, disk: Path) -> None:
    with pytest.raises(
        UserError, match=rf"holds a run already; resume it with `fedloom resume {run}`"
    ):
        RunFolder.create(run, toy.CONFIG)
    (disk / "photos").mkdir()
    (disk / "photos" / "cat.jpg").touch()
    with pytest.raises(
        UserError, match=r"photos is not empty \(it holds cat.jpg\); choose another --out"
    ):
        RunFolder.create(disk / "photos", toy.CONFIG)
    with pytest.raises(UserError, match=r"cat.jpg is a file; choose another --out"):
        RunFolder.create(disk / "photos" / "cat.jpg", toy.CONFIG)
    assert names(disk / "photos") == ["cat.jpg"]


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


def test_a_folder_that_is_not_a_run_is_rejected(disk: Path) -> None:
    for enter in (RunFolder.open, RunFolder.read_only):
        with pytest.raises(
            UserError,
            match=r"is not the folder of a run: it has no config.toml and no checkpoint; make one",
        ):
            enter(disk)
    assert names(disk) == []


def test_a_config_that_is_not_text_is_rejected(run: Path) -> None:
    whole = (run / "config.toml").read_bytes()
    (run / "config.toml").write_bytes(whole + b"lr = \xff")
    with pytest.raises(UserError, match=rf"config.toml is not text \(byte {len(whole) + 5}\)"):
        RunFolder.open(run)
    (run / "config.toml").write_bytes(whole)
    RunFolder.open(run).close()


def test_the_first_line_of_the_config_is_the_format_of_the_folder(run: Path) -> None:
    text = (run / "config.toml").read_text()
    assert text == f"# fedloom run folder, format 2\n{toy.CONFIG}" and FORMAT == 2
    for enter in (RunFolder.open, RunFolder.read_only):
        with enter(run) as folder:
            assert folder.config_text == toy.CONFIG
            assert folder.config_sha256 == sha256(text.encode())


@pytest.mark.parametrize(
    ("header", "written"),
    [
        ("", r"1 \(or without a version\)"),
        ("# fedloom run folder\n", r"1 \(or without a version\)"),
        ("# fedloom run folder, format 1\n", "1"),
        ("# fedloom run folder, format 3\n", "3"),
        ("# fedloom run folder, format two\n", r"1 \(or without a version\)"),
        ("\n# fedloom run folder, format 2\n", r"1 \(or without a version\)"),
    ],
)
def test_other_formats_are_rejected_and_left_as_they_are(
    run: Path, header: str, written: str
) -> None:
    (run / "config.toml").write_text(header + toy.CONFIG)
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
    for enter in (RunFolder.open, RunFolder.read_only):
        with pytest.raises(
            UserError,
            match=rf"^{run} was written in run-folder format {written}, and this version of "
            "fedloom reads format 2; start a new run, or use the version that wrote it$",
        ):
            enter(run)
    assert {p: p.read_bytes() for p in run.rglob("*") if p.is_file()} == before


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


def test_the_result(run: Path) -> None:
    summary = {"accuracy": 0.75, "curve": [1, 2.5], "personal": {"mean": None}}
    with RunFolder.open(run) as folder:
        assert folder.result() is None
        folder.finish(summary)
    assert RunFolder.read_only(run).result() == summary
    good = (run / "result.json").read_bytes()
    assert json.loads(good)["format"] == FORMAT
    for bad in (
        good.replace(b"0.75", b"0.95"),
        good[:-3],
        b"",
        b"[1]",
        seal({"format": 2, "config_sha256": "other", "summary": {}}),
        seal({"config_sha256": folder.config_sha256, "summary": {}}),
        seal({"format": 3, "config_sha256": folder.config_sha256, "summary": {}}),
    ):
        (run / "result.json").write_bytes(bad)
        with pytest.raises(
            RunError,
            match=r"result.json is damaged or belongs to other settings; delete it, and `fedloom",
        ):
            RunFolder.read_only(run).result()


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
