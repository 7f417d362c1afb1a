"""Frozen weights are stored once for all checkpoints of a run."""

from pathlib import Path

import pytest
import safetensors.torch
import torch

from fedloom.core.errors import RunError
from fedloom.runs.durable_files import sha256
from fedloom.runs.folder import RunFolder
from fedloom.runs.frozen_weights import FILE, load, store
from runs import toy


@pytest.fixture
def file(run: Path) -> Path:
    return run / "checkpoint" / FILE


def test_they_are_in_a_file_of_their_own_and_in_no_checkpoint(run: Path, file: Path) -> None:
    assert set(safetensors.torch.load_file(file)) == set(toy.FROZEN)
    for state in (run / "checkpoint").glob("round-*.safetensors"):
        paths = safetensors.torch.load_file(state)
        assert paths and not any(path.removeprefix("params/") in toy.FROZEN for path in paths)


def test_they_are_written_once(disk: Path) -> None:
    with RunFolder.create(disk / "run", toy.CONFIG) as folder:
        toy.run_rounds(folder, 1, 1)
        file = disk / "run/checkpoint" / FILE
        written = file.stat().st_ino, file.stat().st_mtime_ns
        toy.run_rounds(folder, 2, 3)
    with RunFolder.open(disk / "run") as folder:  # another process finds them and leaves them
        folder.restore()
        toy.run_rounds(folder, 4, 5)
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == written


def test_a_restored_state_has_them_in_their_places(run: Path) -> None:
    with RunFolder.open(run) as folder:
        restored = folder.restore()
    assert restored is not None
    expected = toy.state(5).params
    assert list(restored.state.params) == list(expected)
    assert all(torch.equal(restored.state.params[name], expected[name]) for name in toy.FROZEN)


@pytest.mark.parametrize("what", ["missing", "damaged"])
def test_no_checkpoint_is_valid_without_them(run: Path, file: Path, what: str) -> None:
    if what == "missing":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-1] + b"\0")
    with (
        RunFolder.open(run) as folder,
        pytest.raises(RunError, match=rf"frozen weights of the model, is {what}.*from a copy"),
    ):
        folder.restore()


def test_a_file_that_holds_no_tensors_is_named_although_its_checksum_is_right(
    tmp_path: Path,
) -> None:
    (tmp_path / FILE).write_bytes(b"no tensors")
    problem = load(tmp_path, sha256(b"no tensors"), "cpu")
    assert isinstance(problem, str) and "cannot be read" in problem


def test_a_model_without_frozen_weights_has_no_file(tmp_path: Path) -> None:
    assert store(tmp_path, toy.state(1).params, ()) is None
    assert load(tmp_path, None, "cpu") == {}
    assert not list(tmp_path.iterdir())
