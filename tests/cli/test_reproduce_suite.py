"""`fedloom reproduce` of suites, papers and claims: plans, gates, result files, kill -9."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.forks import KILLED, Forks, forks
from cli.talk import TINY, fedloom
from fedloom.claims.claim import Claim, claims

TOY = (
    *TINY,
    "--rounds", 4,
    "--set", "data.classes=None",
    "--set", "data.pixels=None",
    "--set", "data.per_class=30",
    "--set", "data.partition=iid",
    "--set", "train.epochs=1",
    "--set", "evaluate.every=1",
)  # fmt: skip
SUITE = ("reproduce", "--suite", "mix-cnn", *TOY)


@pytest.fixture(scope="module")
def play(home: Path) -> Iterator[Forks]:
    with forks(home) as server:
        yield server


def results_of(folder: Path) -> dict[Path, float]:
    """When each finished run was finished."""
    return {file: file.stat().st_mtime_ns for file in folder.glob("*/seed-*/result.json")}


def content(file: Path) -> Any:
    """A result file without what depends on the clock."""
    facts = json.loads(file.read_text())
    for run in facts["runs"]:
        del run["seconds"], run["log_sha256"]  # a log has the seconds of its rounds
    return facts


def row_files(folder: Path) -> dict[str, str]:
    """The settings and logs of the rows, which do not depend on the clock, by name."""
    return {file.name: file.read_text() for file in folder.iterdir()}


def test_a_dry_run_shows_the_plan_and_runs_nothing(desk: Path) -> None:
    said = fedloom(*SUITE, "--dry-run")
    assert "plan: 12 runs, 0 finished, 12 to do" in said.err
    assert "fedmix: 3 x " in said.err and "estimate: " in said.err
    assert not (desk / "runs").exists()
    facts = fedloom(*SUITE, "--dry-run", "--json").json
    assert len(facts["runs"]) == 12 and facts["core_seconds"] > 0


def test_a_suite_from_plan_to_verdicts(desk: Path) -> None:
    said = fedloom(*SUITE, "--out", "runs", "--results", "found")
    assert "12 of 12 runs to do" in said.err
    assert "mix-cnn: gate" in said.out and "fedmix/over" not in said.out
    assert "fedmix: claims that these runs decide" in said.out and "81.2" in said.out
    listed = said.out.partition("these runs decide")[2]
    assert "\ncifar10-over-fedavg " in listed and "above 1" in listed
    assert "not a fair test of fedmix/cifar10-over-fedavg, " in listed
    found = json.loads((desk / "found" / "mix-cnn.json").read_text())
    cells = {(f["preset"], f["row"], f["column"]): f["by_seed"] for f in found["figures"]}
    first = cells["fedmix/table1-cifar10", "fedavg", "accuracy"]
    assert list(first) == ["0", "1", "2"]
    assert cells["fedmix/table5", "fedavg", "accuracy"] == first  # one run for both tables
    assert len(found["runs"]) == 12
    assert "gate not known: these are not the settings of the suite" in said.out
    assert {"rounds=4", "data.per_class=30", "train.epochs=1"} <= set(found["changed"])
    assert "changed: rounds=4, " in found["scale"] and found["fixed_at"] == ""
    assert found["gate"]["met"] is None and "train.epochs=1" in found["gate"]["why"]
    names = {"fedavg", "naivemix", "fedmix", "globalmixup_0.05"}
    assert {run["file"] for run in found["runs"]} == names
    assert set(row_files(desk / "found" / "mix-cnn")) == {
        f"{name}.{suffix}" for name in names for suffix in ("toml", "csv")
    }
    before = results_of(desk / "runs")
    again = fedloom(*SUITE, "--out", "runs", "--results", "found")
    assert "plan: 12 runs, 12 finished, 0 to do" in again.err and "runs to do," not in again.err
    assert results_of(desk / "runs") == before
    assert json.loads((desk / "found" / "mix-cnn.json").read_text()) == found


def test_a_suite_that_is_killed_repeats_no_finished_run(play: Forks, desk: Path) -> None:
    whole = play(*SUITE, "--out", desk / "whole")
    assert whole.status == 0, whole.said.err
    broken = (*SUITE, "--out", desk / "broken")
    finished: dict[Path, float] = {}
    for share in (0.5, 0.7, 0.4):
        if play(*broken, kill_after=share * whole.seconds).status != KILLED:
            break
        now = results_of(desk / "broken")
        assert finished.items() <= now.items()
        finished = now
    assert finished
    ended = play(*broken)
    assert ended.status == 0, ended.said.err
    assert finished.items() <= results_of(desk / "broken").items()
    files = [content(desk / name / "results" / "mix-cnn.json") for name in ("whole", "broken")]
    assert files[0] == files[1]
    rows = [row_files(desk / name / "results" / "mix-cnn") for name in ("whole", "broken")]
    assert rows[0] == rows[1] and len(rows[0]) == 8


@pytest.mark.slow
def test_several_at_a_time(desk: Path) -> None:
    words = ("reproduce", "--suite", "mix-cnn", *TOY, "--seeds", 1, "--jobs", 2)
    said = fedloom(*words, "--memory", "4GB", "--json").json
    (result,) = said["results"]
    assert len(result["runs"]) == 4 and said["left"] == 0 and result["extended"] is False


def test_hours_leave_runs_for_later(desk: Path) -> None:
    said = fedloom(*SUITE, "--hours", 0)
    assert "--hours 0: 0 runs now (0 s), 12 left for later" in said.err
    assert "12 runs are left" in said.err and not results_of(desk / "runs" / "reproduce")


def test_a_gate_is_tried_on_a_seed_that_is_not_reported(desk: Path) -> None:
    said = fedloom("reproduce", "--gate", "mix-cnn", *TOY)
    assert "gate of mix-cnn, on seed 100, which is not reported" in said.err
    assert "2 of 2 runs to do" in said.err
    assert "globalmixup 0.05 gains" in said.out and "at least 1 needed" in said.out
    facts = fedloom("reproduce", "--gate", "mix-cnn", *TOY, "--json").json
    assert facts["seed"] == 100 and facts["met"] in (True, False)


def test_a_claim_needs_only_its_rows_and_those_of_the_gate(desk: Path) -> None:
    words = ("reproduce", "fedmix/cifar10-over-fedavg", *TOY)
    said = fedloom(*words, "--dry-run")
    assert "plan: 9 runs" in said.err and "naivemix" not in said.err
    fedloom(*words, "--seeds", 1)
    (file,) = (desk / "runs" / "reproduce" / "results").glob("*.json")
    assert file.name == "fedmix-cifar10-over-fedavg.json"  # not that of the whole suite
    assert json.loads(file.read_text())["suite"] == "mix-cnn"


def test_a_paper_is_all_its_suites(desk: Path) -> None:
    said = fedloom("reproduce", "fedmix", *TOY, "--seeds", 1, "--dry-run", "--json").json
    assert said["suites"] == ["mix-lenet", "mix-cnn", "mix-skew", "mix-writers"]


@pytest.mark.slow
def test_columns_of_an_analysis_are_computed_once(desk: Path) -> None:
    claim = ("reproduce", "fedalign/lambda-fedavg-largest", "--seeds", 1)
    words = (*claim, *TOY, "--set", "sample.name=uniform")
    said = fedloom(*words, "--json")
    (result,) = said.json["results"]
    figures = {(f["row"], f["column"]): f["by_seed"] for f in result["figures"]}
    assert figures["fedavg", "lambda_max"]["0"] > 0 and "0" in figures["mixup", "H_T"]
    assert "2 runs to analyse" in said.err
    again = fedloom(*words, "--json")
    assert "to analyse" not in again.err and again.json == said.json


def test_runs_that_diverge_do_not_hold_up_the_others(desk: Path) -> None:
    words = (*SUITE, "--seeds", 1, "--set", "train.lr=1e30", "--set", "guard.max_skipped=0")
    said = fedloom(*words, "--json")
    (result,) = said.json["results"]
    assert len(result["gave_up"]) == 4 and not result["figures"] and not result["runs"]
    assert result["gate"]["met"] is None
    again = fedloom(*words)
    assert "4 runs gave up, since their training diverged" in again.err
    assert "4 runs gave up and have no figures, the first in" in again.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--suite", "mlb5"], "no suite 'mlb5'; did you mean 'mlb50'"),
        (["fedmlb", "--suite", "mlb50"], "name two things to run"),
        (["--suite", "cost"], "commands: fedloom cost fedalign/table5 --draws 8 --json fedloom"),
        (["--suite", "cost"], "--only fedmix-femnist,fedmix-cifar10 (in a checkout of the"),
        (["--suite", "mlb50", "--scale", "paper"], "suite 'mlb50' has its own scale; leave out"),
        (["--gate", "mlb50", "--scale", "paper"], "suite 'mlb50' has its own scale; leave out"),
        (["--claims", "--suite", "mlb50"], "--suite mlb50 cannot be combined with --claims"),
        (["--claims", "--rows", "fedavg"], "--rows fedavg cannot be combined with --claims"),
        (["--claims", "--dry-run"], "--dry-run cannot be combined with --claims; leave it out"),
        (["--claims", "--set", "rounds=2"], "--set rounds=2 cannot be combined with --claims"),
        (["--claims", "--scale", "paper"], "--scale paper cannot be combined with --claims"),
        (["--claims", "--per-round", "3"], "--per-round 3 cannot be combined with --claims"),
        (["--claims", "--jobs", "2"], "--jobs 2 cannot be combined with --claims"),
        (["--claims", "--seed", "0"], "--seed 0 cannot be combined with --claims"),
        (["--gate", "cost"], "suite 'cost' has no runs; its figures come from these commands"),
        (["fedmlb", "--commit", "main"], "--commit 'main' is not the hash of a commit; write 4 to"),
        (["--suite", "mlb50", "--commit", ""], "--commit '' is not the hash of a commit"),
        (["fedmlb", "--hours", "nan"], "nan is not a number of hours"),
        (["--gate", "mix-lenet"], "has no gate"),
        (["--suite", "MLB50"], "no suite 'MLB50'; did you mean 'mlb50'? (choices: cost, mlb50, "),
        (["--gate", "nope"], "mix-common-writers, afa-c10, afa-c10-skewed, afa-c100)"),
        (["fedmlb/nope"], "no table 'fedmlb/nope'"),
        (["fedalign/nope"], "(choices: fedalign/table1, fedalign/table2, fedalign/table3, "),
        (["fedalign/nope"], "the claims of fedalign: fedloom reproduce fedalign --claims)"),
        (["FedMix"], "did you mean 'fedmix'? (choices: fedalign, fedmlb, fedmix, fedafa, or a"),
        (["align-overfit"], "is a suite, not a table; run it with: --suite align-overfit"),
        (["fedalign/time-moon-3x"], "is decided by a cost, not by runs"),
        (["demo"], "is a single run"),
        (
            ["--suite", "mlb50", "--rows", "fedavg"],
            "--rows fedavg cannot be combined with a suite",
        ),
        (
            ["fedmlb", "--seed", "3"],
            "seed 3 is not one of suite 'mlb50'; its seeds were fixed: 0, 1, 2",
        ),
        (["--gate", "mlb50", "--suite", "mlb50"], "--suite mlb50 cannot be combined with --gate"),
        (["fedmlb/overview", "--results", "x"], "--results x cannot be combined with a single"),
        ([], "name a table"),
    ],
)
def test_what_cannot_be_run_is_rejected(desk: Path, words: list[str], message: str) -> None:
    assert message in fedloom("reproduce", *words, code=2).flat


@pytest.mark.parametrize("claim", [c for c in claims() if c.suite == "cost"], ids=lambda c: c.id)
def test_a_claim_about_a_cost_names_its_own_commands(claim: Claim) -> None:
    said = fedloom("reproduce", claim.id, code=2)
    commands = [line for line in said.err.splitlines() if line.startswith(("  fedl", "  pyth"))]
    assert 1 <= len(commands) <= 2 and ("checkout" in said.err) == ("time-" in claim.id)


def test_all_missing_data_of_a_paper_are_named_at_once(desk: Path) -> None:
    said = fedloom("reproduce", "fedmix", "--dry-run", code=2).flat
    assert "no data set 'cifar10'" in said and "no data set 'mnist-writers'" in said
