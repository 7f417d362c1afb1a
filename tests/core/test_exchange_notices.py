"""What a user is told about an exchange: before it, when a limit is exceeded, when data changed."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cli import talk
from fedloom.experiment.build import resolve_auto
from fedloom.experiment.prepare import prepare
from fedloom.experiment.train import Interrupted, train
from fedloom.runs.folder import RunFolder
from fedloom.runs.folder_layout import CONFIG
from fedloom.settings.config import load
from fedloom.settings.overrides import read

PRIVATE = "size=10, tail=drop, clip=3, noise=1, label_noise=0.5"


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a data home that holds the tiny data set."""
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("FEDLOOM_HOME", f"{folder}/home")
        talk.fedloom("data", "add", "tiny", "--from", talk.write_tiny(Path(folder) / "tiny.npz"))
        yield Path(folder)


def test_the_notice_comes_before_the_first_round(home: Path) -> None:
    words = ("run", *talk.TINY, "--rounds", 1, "--partition", "iid", "--out")
    plain = talk.fedloom(*words, home / "a", "--method", "naivemix").flat
    assert (
        "exchange 'mashed': clients send averages of their data; "
        "the smallest is an average of 30 samples. Averaging alone" in plain
    )
    assert plain.index("Averaging alone gives no privacy") < plain.index("round 1/1")


def test_an_exceeded_limit_is_rejected_and_leaves_no_folder(home: Path) -> None:
    pytest.importorskip("dp_accounting", reason="needs fedloom[privacy]")
    words = ("run", *talk.TINY, "--rounds", 1, "--partition", "iid", "--out")
    assert (
        "(epsilon, delta) = ("
        in talk.fedloom(*words, home / "b", "--method", f"naivemix({PRIVATE}, epsilon=9)").flat
    )
    said = talk.fedloom(
        *words, home / "c", "--method", f"naivemix({PRIVATE}, epsilon=1)", code=2
    ).flat
    assert (
        "epsilon=1 at delta=1e-05 is exceeded" in said
        and "raise noise to" in said
        and not (home / "c").exists()
    )


def stopped_run(path: Path) -> None:
    """A run of four rounds that stops after the second."""
    raw = {
        "data": {"name": "tiny", "clients": 8, "partition": "iid"},
        "model": "mlp(layers=1,width=4)",
        "rounds": 4,
    }
    settings = resolve_auto(
        load(
            {**raw, "method": "naivemix(size=5)", "engine": "inprocess", "sample": {"per_round": 3}}
        )
    )
    rounds = iter([False, True])
    with (
        prepare(settings) as prepared,
        RunFolder.create(path, settings.text()) as folder,
        pytest.raises(Interrupted),
    ):
        train(prepared, folder, stop=lambda: next(rounds))


def averages(path: Path) -> np.ndarray:
    with RunFolder.read_only(path) as folder:
        restored = folder.restore()
        assert restored is not None and read(path / CONFIG)
        return restored.state.shared["mashed"]["x"].numpy()


def test_a_resumed_run_keeps_its_averages_and_rejects_other_data(home: Path) -> None:
    """Where data change at the clients, as in a deployment, core asks them again."""
    stopped_run(home / "same")
    before = averages(home / "same")
    assert "have changed" not in talk.fedloom("resume", home / "same").flat
    assert np.array_equal(averages(home / "same"), before)
    stopped_run(home / "other")
    with np.load(home / "tiny.npz") as old:
        arrays = dict(old)
    np.savez(home / "new.npz", **{**arrays, "x_train": 255 - arrays["x_train"]})
    talk.fedloom("data", "add", "tiny", "--from", home / "new.npz", "--replace")
    said = talk.fedloom("resume", home / "other", code=2).flat
    assert "was made with data 'tiny'" in said and "the training samples" in said
    assert np.array_equal(averages(home / "other"), before)
