"""`fedloom reproduce PAPER/TABLE`: the plan before it, verdicts on cells and claims after it."""

import re
from pathlib import Path

from cli.talk import TINY, fedloom

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
WORDS = ("reproduce", "fedmix/table1-cifar10", "--rows", "fedavg,fedmix", *TOY)
ONE = (*WORDS, "--columns", "accuracy")


def test_a_dry_run_shows_the_plan_and_runs_nothing(desk: Path) -> None:
    said = fedloom(*ONE, "--seeds", 3, "--dry-run")
    assert "plan: 6 runs, 0 finished, 6 to do" in said.err
    assert "fedmix: 3 x " in said.err and "estimate: " in said.err
    assert not (desk / "runs").exists() and not said.out
    facts = fedloom(*ONE, "--seeds", 3, "--dry-run", "--json").json
    assert facts["preset"] == "fedmix/table1-cifar10" and len(facts["runs"]) == 6


def test_every_cell_has_a_sign_and_every_claim_about_them_a_verdict(desk: Path) -> None:
    said = fedloom(*ONE, "--seeds", 3, "--json").json
    first, mixed = said["figures"]
    assert first["gains"] == {} and first["sign"] == "-"
    differences = [a - b for a, b in zip(mixed["ours"], first["ours"], strict=True)]
    assert list(mixed["gains"].values()) == differences and list(mixed["gains"]) == ["0", "1", "2"]
    assert mixed["interval"][0] <= mixed["mean_gain"] <= mixed["interval"][1]
    assert re.match(r"(agrees|differs|not decided).* \(gate not known\)", mixed["sign"])
    (claim,) = said["claims"]
    assert claim["id"] == "fedmix/cifar10-over-fedavg" and claim["fair"] is None
    assert claim["mean"] == mixed["mean_gain"] and "fair test: not known" in claim["sentence"]
    shown = fedloom(*ONE, "--seeds", 3)
    assert "plan: 6 runs, 6 finished, 0 to do" in shown.err and "runs to do," not in shown.err
    assert re.search(r"^fedmix/cifar10-over-fedavg +\w+.* fedmix - fedavg ", shown.out, re.M)
    assert mixed["sign"] in shown.out and "fair test: not known" in shown.out


def test_hours_leave_runs_for_later(desk: Path) -> None:
    said = fedloom(*ONE, "--hours", 0)
    assert "no claim is about these cells alone" in said.out
    assert "2 runs are left" in said.err and not list(desk.glob("runs/**/result.json"))
    fedloom(*ONE)
    more = fedloom(*ONE, "--seeds", 2, "--hours", 0, "--json").json
    assert more["left"] == 2 and [f["seeds"] for f in more["figures"]] == [[0], [0]]


def test_runs_that_diverge_do_not_hold_up_the_others(desk: Path) -> None:
    bad = ("--set", "train.lr=1e30", "--set", "guard.max_skipped=0")
    said = fedloom(*ONE, *bad, "--json").json
    assert len(said["gave_up"]) == 2 and said["figures"] == [] and said["picture"] is None
    assert "2 runs gave up and have no figures" in fedloom(*ONE, *bad).err
