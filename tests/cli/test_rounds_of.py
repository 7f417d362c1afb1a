"""Rounds that another run shares are reused, and the result is the same."""

from pathlib import Path
from typing import Any

import pytest

from cli.talk import TINY, Said, fedloom, lines, run
from fedloom.core.spec import Spec
from fedloom.experiment.reuse import find_run_with_same_rounds, leaves_rounds_unchanged
from fedloom.experiment.schedule import folder_name, plan_methods, sharing_last
from fedloom.methods.registry import names
from fedloom.runs.folder import RunFolder
from fedloom.settings.config import load_file

TUNED = "finetune(lr=0.2, batch=10)"
PAIRS = [
    ("fedavg", TUNED),
    ("fedprox", f"fedprox+{TUNED}"),
    ("scaffold", f"scaffold+{TUNED}"),
    ("fedavgm", "ros+fedavgm"),
]


def compare(*methods: str, out: str = "all", more: tuple[object, ...] = ()) -> Said:
    return fedloom(
        "compare", "--methods", ",".join(methods), *TINY, "--rounds", 3, "--out", out, *more
    )


def ends(folder: Path) -> dict[str, Any]:
    """The result of a run without the time it took."""
    with RunFolder.read_only(folder) as opened:
        return {k: v for k, v in (opened.result() or {}).items() if k != "seconds"}


@pytest.mark.parametrize(("plain", "tuned"), PAIRS)
def test_a_result_is_the_same_with_the_rounds_of_another_run(
    desk: Path, plain: str, tuned: str
) -> None:
    said = compare(plain, tuned, out="all")
    assert said.err.count("which are reused") == 1 and f"{tuned} seed 0: round" not in said.err
    alone = run(desk / "alone", "--method", tuned, rounds=3)
    taken = desk / "all" / folder_name(tuned) / "seed-0"
    assert "personal_models" in alone and ends(taken) == ends(desk / "alone")
    assert lines(taken) == lines(desk / "alone")
    (taken / "result.json").unlink()
    fedloom("resume", taken)
    assert ends(taken) == ends(desk / "alone")


def test_runs_at_the_same_time_reuse_rounds_too(desk: Path) -> None:
    """A run whose rounds are being trained waits for them, so that they are trained once."""
    said = compare("fedavg", TUNED, "ros", out="one", more=("--jobs", 2))
    assert said.err.count("which are reused") == 2
    assert all(
        "personal_models" in ends(p / "seed-0")
        for p in (desk / "one").iterdir()
        if p.is_dir() and p.name != "fedavg"
    )


def test_runs_that_reuse_rounds_start_last() -> None:
    raw = {"rounds": 1, "data": {"clients": 10}, "sample": {"per_round": 2}}
    plans = plan_methods(raw, ["ros", "fedprox", TUNED, "fedprox+ros"], 2, Path("nowhere"))
    order = sharing_last(plans)
    assert order == [(0, -1), (1, -1), (2, -1), (3, -1), (4, 0), (5, 1), (6, 2), (7, 3)]


def test_a_run_reuses_the_rounds_of_the_run_it_is_given(desk: Path) -> None:
    run(desk / "plain", "--method", "scaffold", rounds=3)
    alone = run(desk / "alone", "--method", "scaffold+ros", rounds=3)
    taken = run(desk / "taken", "--method", "scaffold+ros", "--rounds-of", desk / "plain", rounds=3)
    assert taken["personal_models"] == alone["personal_models"] and ends(desk / "taken") == ends(
        desk / "alone"
    )


@pytest.mark.parametrize(
    ("words", "fragments"),
    [
        (("--method", "finetune", "--seed", 5), ("seed is 0 there and 5 here", "--config")),
        (
            ("--method", "fedprox+finetune"),
            ("those of fedavg", "fedprox+finetune has others", "finetune"),
        ),
        (("--method", "ditto"), ("those of fedavg", "ditto has others")),
    ],
)
def test_rounds_that_differ_are_rejected(
    desk: Path, words: tuple[object, ...], fragments: tuple[str, ...]
) -> None:
    run(desk / "plain", rounds=2)
    said = fedloom(
        "run", *TINY, "--rounds", 2, "--rounds-of", desk / "plain", "--out", "new", *words, code=2
    )
    assert all(f in said.flat for f in fragments) and not (desk / "new").exists()


def test_rounds_that_score_personal_models_are_not_reused(desk: Path) -> None:
    told = ("--set", "evaluate.personal_every=1")
    run(desk / "plain", "--method", "ros", *told, rounds=2)
    said = fedloom(
        "run",
        *TINY,
        "--rounds",
        2,
        "--method",
        "finetune",
        "--rounds-of",
        "plain",
        *told,
        "--out",
        "new",
        code=2,
    )
    assert "evaluate.personal_every=1" in said.flat and "leave it out" in said.flat
    compare("ros", "finetune", more=told)
    assert (
        lines(desk / "all/ros/seed-0")[0]["personal_models"]
        != lines(desk / "all/finetune/seed-0")[0]["personal_models"]
    )


def test_rounds_of_an_unfinished_run_are_rejected(desk: Path) -> None:
    run(desk / "plain", rounds=2)
    (desk / "plain" / "result.json").unlink()
    said = fedloom(
        "run",
        *TINY,
        "--rounds",
        2,
        "--method",
        "finetune",
        "--rounds-of",
        desk / "plain",
        "--out",
        "new",
        code=2,
    )
    assert (
        "is not finished" in said.flat
        and "fedloom resume" in said.flat
        and not (desk / "new").exists()
    )


OWN = """
from fedloom.core.method import Method, Phase

def twice():
    return Method("twice", (Phase(terms=(lambda step: step.ce,)),))
"""


def test_rounds_of_user_code_that_was_edited_are_not_reused(desk: Path) -> None:
    (desk / "own.py").write_text(OWN)
    run(desk / "plain", "--method", "own.py:twice", rounds=2)
    words = ("run", *TINY, "--rounds", 2, "--method", "own.py:twice+ros", "--rounds-of", "plain")
    fedloom(*words, "--out", "taken")
    (desk / "own.py").write_text(OWN + "# a remark")
    said = fedloom(*words, "--out", "new", code=2)
    assert "the rounds of 'plain' were made with an earlier version of" in said.flat
    assert "own.py'; leave out --rounds-of" in said.flat
    config = load_file(desk / "taken" / "config.toml")
    assert find_run_with_same_rounds(config, [desk / "plain"]) is None
    (desk / "own.py").write_text(OWN)
    assert find_run_with_same_rounds(config, [desk / "plain"]) == desk / "plain"


def test_which_methods_leave_rounds_unchanged() -> None:
    assert {n for n in names() if leaves_rounds_unchanged(Spec(n))} == {
        "fedavg",
        "finetune",
        "ros",
        "crt",
        "m2m",
        "fedafa",
    }
    assert not leaves_rounds_unchanged(Spec("fedavg", {"server_lr": 0.5}))
