"""`fedloom sweep`: grids and random draws, nothing trained twice, mistakes found before a run."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.talk import TINY, Said, fedloom, run
from fedloom.core.errors import RunError, UserError
from fedloom.experiment import job_memory
from fedloom.experiment.job_memory import MemoryGate, parse_memory
from fedloom.settings.config import load

LR = ("--over", "train.lr=0.01,0.1")


def sweep(*words: object, code: int = 0) -> Said:
    return fedloom("sweep", *TINY, "--rounds", 1, "--out", "swept", *words, code=code)


def shas(folder: Path) -> dict[str, str]:
    found = sorted(folder.rglob("result.json"))
    return {
        str(p.parent.relative_to(folder)): json.loads(p.read_text())["summary"]["weights_sha256"]
        for p in found
    }


def ink(picture: Path) -> np.ndarray:
    from matplotlib.image import imread

    pixels = np.asarray(imread(picture))[..., :3]
    return pixels[(pixels < 0.9).any(axis=2)]


def test_a_grid_has_a_row_per_combination_and_its_runs_are_those_of_run(desk: Path) -> None:
    said = sweep(*LR, "--over", "batch=10,20", "--seeds", 2, "--json").json
    names = [f"train.lr={lr} train.batch={b}" for lr in (0.01, 0.1) for b in (10, 20)]
    assert [row["name"] for row in said["rows"]] == names
    assert all(len(row["accuracies"]) == 2 for row in said["rows"])
    assert said["best"] == max(said["rows"], key=lambda row: row["accuracy"])["name"]
    assert said["notes"] == []  # what was varied is no surprise
    alone = run(desk / "alone", "--lr", 0.1, "--set", "train.batch=20", "--seed", 1, rounds=1)
    assert shas(desk / "swept")["train.lr=0.1_train.batch=20/seed-1"] == alone["weights_sha256"]
    assert len(ink(desk / "swept" / "sweep.png")) > 1000


def test_a_finished_sweep_is_not_trained_again_and_grows(desk: Path) -> None:
    first = sweep(*LR, "--json")
    before = {p: p.stat().st_mtime_ns for p in (desk / "swept").rglob("metrics.jsonl")}
    again = sweep(*LR, "--json")
    assert again.json == first.json and "to do" not in again.err
    more = sweep("--over", "train.lr=0.01,0.1,0.2")
    assert "1 of 3 runs to do" in more.err
    assert {p: p.stat().st_mtime_ns for p in before} == before
    assert re.search(r"^best by accuracy on test data: train\.lr=", more.out, re.MULTILINE)
    assert "scores on the test data" in more.flat


def test_an_interrupted_run_is_resumed(desk: Path) -> None:
    sweep(*LR, "--rounds", 2)
    before = shas(desk / "swept")
    folder = desk / "swept" / "train.lr=0.1" / "seed-0"
    (folder / "result.json").unlink()
    said = sweep(*LR, "--rounds", 2)
    assert "1 of 2 runs to do" in said.err and "round 1/" not in said.err
    assert shas(desk / "swept") == before


def test_settings_come_from_a_file_or_a_preset(desk: Path) -> None:
    (desk / "own.toml").write_text("seed = 4\n")
    sweep("own.toml", *LR)
    assert all(path.endswith("seed-4") for path in shas(desk / "swept"))
    said = fedloom("sweep", "fedpros-demo", *LR, code=2).flat
    assert "fedpros-demo" in said and "see: fedloom presets" in said
    assert "'gone.toml' does not exist" in fedloom("sweep", "gone.toml", *LR, code=2).flat


def test_methods_and_their_parameters_can_be_varied(desk: Path) -> None:
    said = sweep("--over", "method=fedavg,fedprox(mu=0.1)", "--json").json
    assert [r["name"] for r in said["rows"]] == ["method=fedavg", "method=fedprox(mu=0.1)"]
    said = sweep("--method", "fedprox", "--over", "method.fedprox.mu=0,1", "--json").json
    assert [r["name"] for r in said["rows"]] == ["method.fedprox.mu=0", "method.fedprox.mu=1"]


def test_random_draws_are_those_of_the_seed_and_a_longer_list_begins_with_them(desk: Path) -> None:
    words = ("--over", "train.lr=0.001..0.1", "--over", "train.batch=5..20")
    few = [r["name"] for r in sweep(*words, "--random", 2, "--json").json["rows"]]
    said = sweep(*words, "--over", "train.momentum=0,0.5", "--random", 3, "--json").json
    assert len(few) == 2 and len(said["rows"]) == 3
    assert len(ink(desk / "swept" / "sweep.png")) > 1000  # three settings: a panel for each
    more = sweep(*words, "--random", 3)
    assert "1 of 3 runs to do" in more.err
    for lr, batch in (re.findall(r"=(\S+)", name) for name in few):
        assert 0.001 <= float(lr) <= 0.1 and 5 <= int(batch) <= 20


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "nothing to vary; add at least one --over"),
        (("--over", "train.lrr=0.1,1"), "no setting 'train.lrr'; did you mean 'lr'?"),
        (("--over", "train.lr=0.1,-1"), "train.lr=-1 should be greater than 0"),
        (("--over", "train.lr=0.1,fast"), "train.lr='fast' should be a finite number, not text"),
        (("--over", "train.lr=0.1,0.10"), "--over train.lr lists 0.1 twice"),
        (("--over", "train.lr=0.1,,1"), "is not of the form SETTING=VALUE,VALUE"),
        (("--over", "train.lr=0.1", "--over", "lr=1"), "--over names 'train.lr' twice"),
        (("--over", "train.lr=1..0.1", "--random", 2), "from a number to a larger one"),
        (("--over", "train.lr=0.1..1"), "a grid needs values, not a range"),
        (("--over", "seed=1,2"), "write --seeds 3"),
        (("--over", "method=fedavg,fedporx"), "did you mean 'fedprox'?"),
        ((*LR, "--method", "pfedme"), "'pfedme' does not use train.lr, so all its values would"),
        (("--over", "method.fedavg.mu=0,1"), "no parameter 'mu'"),
        (("--over", "per_round=2,9"), "sample.per_round=9 is more than the 8 clients"),
        ((*LR, "--seeds", 600), "2 combinations with 600 seeds are 1,200 runs;"),
        (("--over", f"train.batch={','.join(map(str, range(1, 99)))}", "--over",
          f"rounds={','.join(map(str, range(1, 99)))}"), "9,604 runs"),
        ((*LR, "--memory", "8GB"), "--jobs is 1; add --jobs N"),
        ((*LR, "--memory", "lots", "--jobs", 2), "--memory lots is not an amount of memory"),
    ],
)  # fmt: skip
def test_mistakes_are_found_before_the_first_run(
    words: tuple[Any, ...], message: str, desk: Path
) -> None:
    assert message in sweep(*words, code=2).flat
    assert not (desk / "swept").exists()


def test_all_problems_are_reported_at_once(desk: Path) -> None:
    said = sweep("--over", "train.lr=0.1,-1,-2", "--over", "train.batch=5,0", code=2).flat
    assert "train.lr=-1" in said and "train.lr=-2" in said and "train.batch=0" in said


def test_training_that_diverges_is_a_row_with_a_note(desk: Path) -> None:
    """It was once the end of all runs after it."""
    words = ("--over", "train.lr=1e30,0.1", "--json")
    said = sweep(*words)
    assert "train.lr=1e+30, seed 0: gave up after 1 rounds" in said.json["notes"][0]
    assert said.json["best"] == "train.lr=0.1"
    again = sweep(*words)
    assert again.json == said.json and "to do" not in again.err
    sweep(*words, "--jobs", 2, "--out", "apart")
    assert shas(desk / "apart") == shas(desk / "swept")


@pytest.mark.slow
def test_several_at_a_time_under_a_memory_limit_are_the_same_runs(desk: Path) -> None:
    sweep(*LR)
    sweep(*LR, "--jobs", 2, "--memory", "4GB", "--out", "apart")
    assert shas(desk / "apart") == shas(desk / "swept") and len(shas(desk / "swept")) == 2
    said = sweep(*LR, "--jobs", 2, "--memory", "5MB", "--out", "less", code=1).flat
    assert re.search(r"one run took [\d,]+ MB, more than --memory 5MB; raise it", said)


def test_amounts_of_memory() -> None:
    assert parse_memory("1.5 GB") == 1_500_000_000 and parse_memory("2MiB") == 2 * 2**20
    with pytest.raises(UserError, match="write for example 8GB"):
        parse_memory("0GB")


def test_no_more_runs_begin_than_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of 100 bytes under a limit of 350: the first alone, then at most three at a time."""
    from concurrent.futures import ThreadPoolExecutor
    from threading import Lock
    from time import sleep

    seen, now, lock = [], [0], Lock()

    def watched(command: object) -> tuple[int, int]:
        with lock:
            now[0] += 1
            seen.append(now[0])
        sleep(0.05)
        with lock:
            now[0] -= 1
        return 0, 100

    monkeypatch.setattr(job_memory, "_run_watched", watched)
    gate = MemoryGate(350)
    configs = [load({"seed": seed, "train": {"lr": 0.1 + seed}}) for seed in range(12)]
    with ThreadPoolExecutor(8) as pool:
        assert not any(pool.map(lambda config: gate.run([], config), configs))
    assert seen[0] == 1 and max(seen) == 3 and len(seen) == 12
    larger = load({"train": {"batch": 999}})  # of another kind: alone again
    assert gate.run([], larger) == 0
    with pytest.raises(RunError, match="one run took"):
        small = MemoryGate(50)
        small.run([], larger)
        small.run([], larger)
    gate.close()
    assert gate.run([], larger) == job_memory.STOPPED


def test_without_optuna_tune_says_what_to_install(
    desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    said = fedloom("tune", *TINY, "--methods", "fedavg,fedprox", code=2).flat
    assert "fedloom tune needs Optuna, which is not installed; install it with: pip install" in said
    assert not (desk / "runs").exists()
