"""`fedloom reproduce --scale paper`: a counted plan, and all that is missing, at once."""

from pathlib import Path

import numpy as np
import pytest

from cli.talk import fedloom

PAPER = ("--scale", "paper")


@pytest.fixture
def small_cifar(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A data set of the name of CIFAR-10, with far fewer images."""
    monkeypatch.setenv("FEDLOOM_HOME", str(desk / "home"))
    pixels, labels = np.arange(40 * 3 * 32 * 32, dtype=np.uint8), np.arange(40) % 10
    parts = {"x": pixels.reshape(40, 3, 32, 32), "y": labels}
    names = {f"{part}_{split}": parts[part] for part in parts for split in ("train", "test")}
    np.savez(desk / "few.npz", **names)
    fedloom("data", "add", "cifar10", "--from", "few.npz")


def test_a_dry_run_counts_and_times_nothing(
    small_cifar: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedloom.claims.estimate.measure", pytest.fail)
    words = ("reproduce", "fedmix/table1-cifar10", "--rows", "fedavg,fedprox", "--seeds", 3)
    said = fedloom(*words, *PAPER, "--dry-run", "--device", "mps", code=2)
    assert "6 trainings of 2 kinds; " in said.err
    assert "device 'mps' does not exist on this machine" in said.flat
    assert "fedloom cost fedmix/table1-cifar10 --paper-scale --gpu h100" in said.flat
    assert "fedavg, accuracy on cifar10: 3 x 0.7 h (500 rounds, 1,250,000 steps)" in said.err
    assert "'cifar10' has 40 training samples here and needs 50,000; add it with" in said.flat


def test_everything_that_is_missing_is_said_at_once(small_cifar: None) -> None:
    said = fedloom("reproduce", "fedmix", *PAPER, "--set", "rounds=0", code=2)
    assert "rounds" in said.flat  # wrong settings come first
    said = fedloom("reproduce", "fedmix", *PAPER, "--per-round", 200, code=2)
    assert "there is no data set 'femnist'" in said.flat
    assert "'cifar10' has 40 training samples here" in said.flat
    assert "sample.per_round=200 is more than the 60 clients" in said.flat
    assert "(fedmix/table1-cifar10, globalmixup, accuracy and " in said.flat
    plan = fedloom("reproduce", "fedmix", *PAPER, "--per-round", 200, "--dry-run", code=2).flat
    assert "globalmixup, accuracy: 5 x not counted, since it cannot run" in plan


def test_own_data_at_the_papers_scale_are_not_counted(desk: Path) -> None:
    words = ("reproduce", "fedmix/table1-femnist", "--rows", "fedavg", "--columns", "accuracy")
    said = fedloom(*words, *PAPER, "--data", "tiny", "--dry-run", "--json")
    (run,) = said.json["runs"]
    assert run["rounds"] == 200 and run["hours"] is None
    assert "not counted: not a data set of the papers" in said.err


def test_a_dry_run_at_the_papers_scale_has_no_hours(desk: Path) -> None:
    said = fedloom("reproduce", "fedmlb", *PAPER, "--dry-run", "--hours", 3, code=2)
    assert "--hours 3.0 cannot be combined with a dry run at the paper's scale" in said.flat
