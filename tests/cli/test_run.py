"""`fedloom run` and `fedloom resume`: JSON, determinism, where settings come from, user code."""

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from cli.talk import TINY, fedloom, lines, run
from fedloom.engines import choose
from support import warm_python

FIXED = (
    "run --method fedprox --rounds 3 --clients 20 --per-round 5 --seed 1 --engine inprocess --json"
)


def settings(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "config.toml").read_text())


def test_a_run_prints_one_json_object(desk: Path) -> None:
    """In another process only the object is on stdout, and this process has the same bits."""
    process = warm_python.run("-m", "fedloom", *FIXED.split(), "--out", "there")
    assert process.returncode == 0, process.stderr
    (line,) = process.stdout.splitlines()
    there = json.loads(line)
    assert (there["method"], there["rounds"], there["seed"], there["folder"]) == (
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
    assert {**here, "folder": "", "seconds": 0} == {**there, "folder": "", "seconds": 0}
    assert lines(desk / "here") == lines(desk / "there")


def test_resuming_a_finished_run_prints_the_same_object_and_trains_nothing(desk: Path) -> None:
    first = run(desk / "run", "--method", "scaffold")
    before = {
        p: p.read_bytes() for p in [*desk.glob("run/*.json*"), *desk.glob("run/checkpoint/*")]
    }
    said = fedloom("resume", desk / "run", "--json")
    assert said.json == first and said.err == ""
    assert {p: p.read_bytes() for p in before} == before


def test_the_printed_table_has_the_same_facts(desk: Path) -> None:
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


def test_runs_without_a_folder_get_a_new_one_each(desk: Path) -> None:
    outs = [
        fedloom("run", *TINY, "--rounds", 1, "--seed", 2, "--json").json["folder"] for _ in range(3)
    ]
    assert outs == ["runs/fedavg-s2", "runs/fedavg-s2-2", "runs/fedavg-s2-3"]


def test_a_server_optimiser_can_be_joined_by_name_or_by_flag(desk: Path) -> None:
    joined = run(desk / "joined", "--method", "fedprox(mu=0.3)+fedadam(lr=0.02)")
    flag = run(desk / "flag", "--method", "fedprox(mu=0.3)", "--server", "fedadam(lr=0.02)")
    plain = run(desk / "plain", "--method", "fedprox(mu=0.3)")
    assert flag["method"] == joined["method"] == "fedprox+fedadam"
    assert flag["weights_sha256"] == joined["weights_sha256"] != plain["weights_sha256"]
    assert settings(desk / "flag") == settings(desk / "joined")


def test_parameters_can_be_set_by_their_full_names(desk: Path) -> None:
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


@pytest.mark.parametrize(
    ("flag", "value", "setting"),
    [("--lr", 0.2, "train.lr"), ("--batch", 7, "train.batch"), ("--epochs", 2, "train.epochs")],
)
def test_flags_of_local_training_equal_their_settings(
    flag: str, value: float, setting: str, desk: Path
) -> None:
    words = ("--data", "tiny", "--model", "mlp(layers=1,width=4)", "--clients", 8, "--rounds", 1)
    short = fedloom("run", *words, flag, value, "--out", "short", "--json").json
    assignment = ("--set", f"{setting}={value}")
    long = fedloom("run", *words, *assignment, "--out", "long", "--json").json
    plain = fedloom("run", *words, "--out", "plain", "--json").json
    assert short["weights_sha256"] == long["weights_sha256"] != plain["weights_sha256"]
    assert settings(desk / "short") == settings(desk / "long")
    assert settings(desk / "short")["train"][setting.removeprefix("train.")] == value


def test_a_setting_of_another_table_is_suggested_by_its_full_name(desk: Path) -> None:
    said = fedloom("run", "--set", "lr=0.1", code=2).flat
    assert "no setting 'lr'; did you mean 'train.lr'?" in said
    assert list(desk.iterdir()) == []


@pytest.mark.parametrize("flag", ["-v", "--verbose"])
def test_the_choice_of_the_engine_is_explained_only_if_asked_for(
    flag: str, desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every run counts as large enough to be calibrated; the result is the same either way."""
    monkeypatch.setattr(choose, "PARALLEL_MACS", 0)
    monkeypatch.setattr(choose, "calibrated", lambda *run: "a test has said so")
    words = ("run", *TINY, "--rounds", 1, "--engine", "auto", "--workers", 1, "--json")
    quiet, verbose = fedloom(*words, "--out", "quiet"), fedloom(*words, "--out", "verbose", flag)
    note = "engine: inprocess (not vectorised, since a test has said so)"
    assert note in verbose.err.splitlines() and "engine" not in quiet.err
    assert quiet.json["weights_sha256"] == verbose.json["weights_sha256"]


def test_compare_explains_the_engine_of_every_run_only_if_asked_for(
    desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choose, "PARALLEL_MACS", 0)
    monkeypatch.setattr(choose, "calibrated", lambda *run: "a test has said so")
    words = ("compare", "--methods", "fedavg,fedprox", *TINY, "--rounds", 1, "--workers", 1)
    assert "engine" not in fedloom(*words, "--out", "quiet").err
    assert fedloom(*words, "--out", "verbose", "-v").err.count("engine: inprocess (not vect") == 2


def test_later_settings_override_earlier_ones(desk: Path) -> None:
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
    assert got["data"]["partition"] == {"name": "dirichlet", "alpha": 1.0}  # of the preset
    assert (got["train"]["batch"], got["train"]["epochs"]) == (10, 20)
    assert got["train"]["lr"] == 0.5 and got["data"]["name"] == "tiny"  # the file over the preset
    assert got["data"]["clients"] == 5 and got["sample"] == {
        "name": "uniform",
        "per_round": 2,
    }  # flags over the file
    assert got["rounds"] == 1 and got["model"] == {"name": "mlp", "width": 3}  # --set over flags


def test_the_settings_in_a_run_folder_repeat_the_run(desk: Path) -> None:
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
        gaps = (p - step.job.received[n] for n, p in step.params.items())
        return weight / 2 * sum((gap ** 2).sum() for gap in gaps)
    return Method("nearer", (Phase(terms=(term,)),))

def flat(shape, classes, width: int = 4):
    hidden = nn.Linear(shape[1] * shape[2], width)
    return nn.Sequential(nn.Flatten(), hidden, nn.ReLU(), nn.Linear(width, classes))
"""


@pytest.fixture
def own(desk: Path) -> Path:
    (desk / "own.py").write_text(OWN)
    return desk


def test_a_custom_method(own: Path) -> None:
    """With the proximal term of FedProx it trains as FedProx does, and with weight 0 as FedAvg."""
    custom = run(own / "custom", "--method", "own.py:nearer(weight=0.5)", "--set", "dtype=float64")
    packaged = run(own / "packaged", "--method", "fedprox(mu=0.5)", "--set", "dtype=float64")
    assert custom["test_loss"] == pytest.approx(packaged["test_loss"], rel=1e-12)
    nothing = run(own / "nothing", "--method", "own.py:nearer(weight=0)")
    assert (
        nothing["weights_sha256"]
        == run(own / "fedavg")["weights_sha256"]
        != custom["weights_sha256"]
    )


def test_a_custom_model(own: Path) -> None:
    results = [
        run(own / name, "--model", f"own.py:flat(width={width})")
        for name, width in (("a", 4), ("b", 4), ("c", 5))
    ]
    assert (
        results[0]["weights_sha256"] == results[1]["weights_sha256"] != results[2]["weights_sha256"]
    )
    weights = 4 * (64 * 4 + 4 + 4 * 4 + 4)  # bytes of 64 -> 4 -> 4 in single precision
    assert results[0]["bytes_down"] == 3 * 3 * weights


def test_a_run_with_user_code_resumes_from_any_directory(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(own / "run", "--method", "own.py:nearer", "--model", "own.py:flat")
    (own / "elsewhere").mkdir()
    monkeypatch.chdir(own / "elsewhere")
    assert fedloom("resume", own / "run", "--json").json == first


@pytest.mark.parametrize(
    "word", [("--method", "own.py:nearer"), ("--model", "own.py:flat"), ("--method", "own:nearer")]
)
def test_user_code_that_was_edited_is_reported(
    own: Path, monkeypatch: pytest.MonkeyPatch, word: tuple[str, str]
) -> None:
    monkeypatch.syspath_prepend(own)
    monkeypatch.delitem(sys.modules, "own", raising=False)
    run(own / "run", *word)
    for edit, told in (("", False), ("# a remark\n", True)):
        (own / "own.py").write_text(OWN + edit)
        (own / "run/result.json").unlink()
        assert (
            "was edited after the last checkpoint" in fedloom("resume", own / "run").flat
        ) is told
