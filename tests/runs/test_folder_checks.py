"""A folder that does not fit its checkpoints: edited settings, lost memories or checkpoints."""

import shutil
from pathlib import Path

import pytest

from fedloom.core.errors import RunError, UserError
from fedloom.runs.folder import RunFolder
from runs import toy


def test_an_edited_config_is_rejected(run: Path) -> None:
    text = (run / "config.toml").read_text()
    (run / "config.toml").write_text(text.replace("0.05", "0.06"))
    with (
        RunFolder.open(run) as folder,
        pytest.raises(
            UserError, match=r"round 5, 4, 3: config\.toml is not the one .*put the file"
        ),
    ):
        folder.restore()


def test_a_missing_database_is_detected(run: Path) -> None:
    (run / "clients.sqlite").unlink()
    with (
        RunFolder.open(run) as folder,
        pytest.raises(RunError, match=r"clients\.sqlite holds 0 memories that are not the \d+"),
    ):
        folder.restore()


@pytest.mark.parametrize("left", [(), ("round-5.safetensors",)])
def test_emptied_checkpoints_are_reported_and_nothing_is_cut(run: Path, left: tuple[str]) -> None:
    for file in (run / "checkpoint").iterdir():
        if file.name not in left:
            file.unlink()
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file() and p.name != "lock"}
    for enter in (RunFolder.open, RunFolder.read_only):
        with (
            enter(run) as folder,
            pytest.raises(RunError, match=r"has 5 rounds .*, but its checkpoints are gone from "),
        ):
            folder.restore()
    assert before == {p: p.read_bytes() for p in run.rglob("*") if p.is_file() and p.name != "lock"}


def test_rounds_before_the_first_checkpoint_are_no_sign_of_a_loss(disk: Path) -> None:
    with RunFolder.create(disk / "run", "checkpoint_every = 3\n" + toy.CONFIG) as folder:
        for round in (1, 2, 3):
            folder.append_metrics(toy.line(round))
    with RunFolder.open(disk / "run") as folder:
        assert folder.restore() is None and folder.metrics() == []


def test_a_copy_that_was_interrupted_is_no_sign_of_a_loss(disk: Path) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        RunFolder.create(disk / "run", toy.CONFIG) as folder,
        folder.copying_rounds(),
    ):
        for round in (1, 2, 3):
            folder.append_metrics(toy.line(round))
        raise KeyboardInterrupt
    with RunFolder.open(disk / "run") as folder:
        assert folder.restore() is None and folder.metrics() == []
        toy.run_rounds(folder, 1, 3)
    assert not (disk / "run/copying").exists()
    shutil.rmtree(disk / "run/checkpoint")
    (disk / "run/checkpoint").mkdir()
    with RunFolder.open(disk / "run") as folder, pytest.raises(RunError, match="are gone"):
        folder.restore()
