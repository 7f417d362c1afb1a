"""Commands on a task without classes: R2 is written as it is, and what needs classes says so."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.talk import fedloom

HOSPITALS = Path(__file__).parents[2] / "docs" / "examples" / "hospitals"
RUN = (
    "--data", "ages", "--partition", "user", "--clients", 0, "--per-round", 4,
    "--model", "mlp(width=8)", "--rounds", 2, "--engine", "inprocess", "--set", "task=regression",
)  # fmt: skip


@pytest.fixture
def ages(desk: Path) -> Iterator[Path]:
    options = ("--option", "target=age", "--option", "task=regression")
    fedloom("data", "add", "ages", "--from", HOSPITALS, *options)
    yield desk
    fedloom("data", "remove", "ages")


def test_runs_that_have_models_of_clients_beside_others(ages: Path) -> None:
    fedloom("run", *RUN, "--out", "global")
    fedloom("run", *RUN, "--method", "ditto", "--lr", 0.01, "--out", "own")
    said = fedloom("report", "global", "own", "--by", "train.lr", "--out", "plots")
    assert "personal: R2 of a client's own model" in said.out
    assert Path("plots/effects.png").exists()


def test_trials_are_judged_by_r2(ages: Path) -> None:
    pytest.importorskip("optuna", reason="tuning needs Optuna: the extra 'tune'")
    words = ("tune", *RUN, "--methods", "fedavg,ditto", "--trials", 1, "--seeds", 1)
    said = fedloom(*words, "--out", "tuned")
    assert "held-out R2" in said.out and "gave up in every trial" not in said.err
    tuned = fedloom(*words, "--out", "tuned", "--json").json["tuned"]
    assert all(one["gave_up"] == 0 and one["held_out"] < 1 for one in tuned)


def test_an_analysis_is_refused(ages: Path) -> None:
    fedloom("run", *RUN, "--out", "run")
    said = fedloom("analyze", "run", code=2)
    assert "the task of this run is regression" in said.err


def test_a_partition_is_shown_without_naming_the_task(ages: Path) -> None:
    said = fedloom("data", "show", "ages", "--partition", "user", "--clients", 0, "--json").json
    assert [row for (row,) in said["counts"]] and len(said["counts"]) == 4
    assert "label_entropy" not in said and said["clients"] == 4
    said = fedloom("data", "show", "ages", "--partition", "user", "--clients", 0)
    assert "4 clients, " in said.out and "class" not in said.out and "entropy" not in said.out
    said = fedloom("data", "show", "ages", code=2)
    assert "splits samples by class" in said.err
