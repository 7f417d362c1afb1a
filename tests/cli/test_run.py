"""`fedloom run` and `fedloom resume`: the fixed words, one seed one result, where settings come from, code of one's own."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from cli.talk import TINY, fedloom, lines, run

FIXED = (
    "run --method fedprox --rounds 3 --clients 20 --per-round 5 --seed 1 --engine inprocess --json"
)


def settings(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "config.toml").read_text())


def test_the_fixed_words_print_one_object(desk: Path) -> None:
    """In a process of its own, where nothing but the object may reach stdout; and the same bits come out of this process."""
    command = [sys.executable, "-m", "fedloom", *FIXED.split(), "--out", "there"]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    (line,) = process.stdout.splitlines()
    there = json.loads(line)
    assert (there["method"], there["rounds"], there["seed"], there["out"]) == (
        "fedprox",
        3,
        1,
        "there",
    )
    assert (
        0.1 < there["accuracy"] < 1
        and there["seconds"] > 0
        and re.fullmatch(r"[0-9a-f]{64}", there["weights_sha256"])
    )
    assert there["accuracy"] == lines(desk / "there")[-1]["accuracy"]
    here = fedloom(*FIXED.split(), "--out", "here").json
    assert {**here, "out": "", "seconds": 0} == {**there, "out": "", "seconds": 0}
    assert lines(desk / "here") == lines(desk / "there")


def test_resume_of_a_finished_run_prints_the_same_object_and_trains_nothing(desk: Path) -> None:
    first = run(desk / "run", "--method", "scaffold")
    before = {
        p: p.read_bytes() for p in [*desk.glob("run/*.json*"), *desk.glob("run/checkpoint/*")]
    }
    said = fedloom("resume", desk / "run", "--json")
    assert said.json == first and said.err == ""
    assert {p: p.read_bytes() for p in before} == before


def test_a_person_reads_the_same_facts(desk: Path) -> None:
    result = run(desk / "run")
    shown = fedloom("resume", desk / "run").out
    assert (
        result["weights_sha256"] in shown
        and f"{result['accuracy']:.4f}" in shown
        and str(desk / "run") in shown
    )


def test_one_seed_one_result(desk: Path) -> None:
    one, same, other = (
        run(desk / name, "--seed", seed) for name, seed in (("one", 3), ("same", 3), ("other", 4))
    )
    assert one["weights_sha256"] == same["weights_sha256"] != other["weights_sha256"]
    assert lines(desk / "one") == lines(desk / "same")
    assert lines(desk / "one")[0]["participants"] != lines(desk / "other")[0]["participants"]


def test_runs_without_a_folder_get_one_each(desk: Path) -> None:
    outs = [
        fedloom("run", *TINY, "--rounds", 1, "--seed", 2, "--json").json["out"] for _ in range(3)
    ]
    assert outs == ["runs/fedavg-s2", "runs/fedavg-s2-2", "runs/fedavg-s2-3"]


def test_a_server_optimiser_can_be_joined_by_name_or_by_flag(desk: Path) -> None:
    joined = run(desk / "joined", "--method", "fedprox(mu=0.3)+fedadam(lr=0.02)")
    flag = run(desk / "flag", "--method", "fedprox(mu=0.3)", "--server", "fedadam(lr=0.02)")
    plain = run(desk / "plain", "--method", "fedprox(mu=0.3)")
    assert flag["method"] == joined["method"] == "fedprox+fedadam"
    assert flag["weights_sha256"] == joined["weights_sha256"] != plain["weights_sha256"]
    assert settings(desk / "flag") == settings(desk / "joined")


def test_arguments_can_be_set_afterwards(desk: Path) -> None:
    short = run(desk / "short", "--method", "fedprox(mu=0.3)", "--partition", "classes(classes=3)")
    words = (
        "--method",
        "fedprox",
        "--set",
        "method.fedprox.mu=0.3",
        "--partition",
        "classes",
        "--set",
        "data.partition.classes=3",
    )
    assert run(desk / "long", *words)["weights_sha256"] == short["weights_sha256"]
    assert settings(desk / "long") == settings(desk / "short")


def test_later_settings_go_over_earlier_ones(desk: Path) -> None:
    """Preset, file, flags, --set, in this order; tables are merged, not replaced."""
    (desk / "mine.toml").write_text(
        'rounds = 9\n\n[data]\nname = "tiny"\nclients = 6\n\n[train]\nlr = 0.5\n'
    )
    words = (
        "--preset",
        "demo",
        "--config",
        "mine.toml",
        "--clients",
        5,
        "--per-round",
        2,
        "--model",
        "mlp",
        "--rounds",
        4,
    )
    fedloom("run", *words, "--set", "rounds=1", "--set", "model.width=3", "--out", "run")
    got = settings(desk / "run")
    assert got["data"]["partition"] == {"name": "classes", "classes": 2}  # of the preset alone
    assert (got["train"]["batch"], got["train"]["epochs"]) == (20, 2)
    assert got["train"]["lr"] == 0.5 and got["data"]["name"] == "tiny"  # the file over the preset
    assert got["data"]["clients"] == 5 and got["sample"] == {
        "name": "uniform",
        "per_round": 2,
    }  # flags over the file
    assert got["rounds"] == 1 and got["model"] == {"name": "mlp", "width": 3}  # --set over flags


def test_the_settings_of_a_run_make_the_same_run(desk: Path) -> None:
    first = run(desk / "first", "--method", "feddyn(alpha=0.05)", "--seed", 8)
    again = fedloom("run", "--config", "first/config.toml", "--out", "again", "--json").json
    assert again["weights_sha256"] == first["weights_sha256"]
    assert (desk / "again/config.toml").read_bytes() == (desk / "first/config.toml").read_bytes()


OWN = """
import torch
from torch import nn
from fedloom.core.method import Method, Phase

def nearer(weight: float = 0.1):
    def term(step):
        return weight / 2 * sum(((p - step.job.received[n]) ** 2).sum() for n, p in step.params.items())
    return Method("nearer", (Phase(terms=(term,)),))

def flat(shape, classes, width: int = 4):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[1] * shape[2], width), nn.ReLU(), nn.Linear(width, classes))
"""


@pytest.fixture
def own(desk: Path) -> Path:
    (desk / "own.py").write_text(OWN)
    return desk


def test_a_method_of_ones_own(own: Path) -> None:
    """Written as FedProx is, it does what FedProx does, and 0 is FedAvg."""
    memories = run(own / "mine", "--method", "own.py:nearer(weight=0.5)", "--set", "dtype=float64")
    packaged = run(own / "packaged", "--method", "fedprox(mu=0.5)", "--set", "dtype=float64")
    assert memories["loss"] == pytest.approx(packaged["loss"], rel=1e-12)
    nothing = run(own / "nothing", "--method", "own.py:nearer(weight=0)")
    assert (
        nothing["weights_sha256"]
        == run(own / "fedavg")["weights_sha256"]
        != memories["weights_sha256"]
    )


def test_a_model_of_ones_own(own: Path) -> None:
    results = [
        run(own / name, "--model", f"own.py:flat(width={width})")
        for name, width in (("a", 4), ("b", 4), ("c", 5))
    ]
    assert (
        results[0]["weights_sha256"] == results[1]["weights_sha256"] != results[2]["weights_sha256"]
    )
    weights = 4 * (64 * 4 + 4 + 4 * 4 + 4)  # bytes of 64 -> 4 -> 4 in single precision
    assert results[0]["bytes_down"] == 3 * 3 * weights


def test_a_run_with_ones_own_code_goes_on_from_anywhere(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(own / "run", "--method", "own.py:nearer", "--model", "own.py:flat")
    (own / "elsewhere").mkdir()
    monkeypatch.chdir(own / "elsewhere")
    assert fedloom("resume", own / "run", "--json").json == first


@pytest.mark.parametrize(
    "word", [("--method", "own.py:nearer"), ("--model", "own.py:flat"), ("--method", "own:nearer")]
)
def test_ones_own_code_that_is_edited_is_told(
    own: Path, monkeypatch: pytest.MonkeyPatch, word: tuple[str, str]
) -> None:
    monkeypatch.syspath_prepend(own)
    monkeypatch.delitem(sys.modules, "own", raising=False)
    run(own / "run", *word)
    for edit, told in (("", False), ("# a remark\n", True)):
        (own / "own.py").write_text(OWN + edit)
        (own / "run/result.json").unlink()
        assert (
            "has been edited since the last checkpoint" in fedloom("resume", own / "run").flat
        ) is told
