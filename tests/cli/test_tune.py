"""`fedloom tune`: the same budget for every method, no test data, and kills change nothing."""

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from cli.talk import TINY, Said, fedloom, run
from fedloom.core.child_process import module_command
from fedloom.settings.config import load_file

TUNE = ("tune", *TINY, "--methods", "fedavg,fedprox", "--rounds", 1)


pytest.importorskip("optuna", reason="tuning needs Optuna: the extra 'tune'")


def tune(*words: object, trials: int = 3, seeds: int = 1, code: int = 0) -> Said:
    return fedloom(*TUNE, "--trials", trials, "--seeds", seeds, *words, code=code)


def configs(folder: Path) -> dict[str, Any]:
    found = sorted(folder.rglob("config.toml"))
    return {str(p.parent.relative_to(folder)): load_file(p) for p in found}


def test_every_method_has_the_same_trials_on_held_out_samples_and_other_seeds(desk: Path) -> None:
    said = tune("--tuning-seeds", 2, "--seed", 5, "--json", seeds=2).json
    trials = configs(desk / "runs/tune/trials")
    for method in ("fedavg", "fedprox"):
        names = [f"{method}/trial-{n}/seed-{s}" for n in (1, 2, 3) for s in (1005, 1006)]
        assert sorted(n for n in trials if n.startswith(f"{method}/")) == names
    assert {config.data.validation for config in trials.values()} == {0.2}
    reported = configs(desk / "runs/tune/reported")
    assert {(c.seed, c.data.validation) for c in reported.values()} == {(5, 0), (6, 0)}
    first, second = said["tuned"]
    assert [t["settings"]["train.lr"] for t in first["trials"]] == [
        t["settings"]["train.lr"] for t in second["trials"]
    ]  # drawn at random before there is anything to learn from
    assert first["space"][0] == second["space"][0] == "train.lr=0.005..0.5 (log)"
    assert second["space"][1:] == ["method.fedprox.mu=0.001..0.1 (log)"]


def test_the_best_trial_is_reported_with_its_settings(desk: Path) -> None:
    said = tune("--json").json
    for one, row in zip(said["tuned"], said["rows"], strict=True):
        best = max(one["trials"], key=lambda trial: trial["score"])
        assert one["chosen"] == best["settings"] and one["held_out"] == best["score"]
        assert row["name"] == one["method"] and len(row["accuracies"]) == 1
    chosen = said["tuned"][1]["chosen"]
    method = f"fedprox(mu={chosen['method.fedprox.mu']})"
    alone = run(desk / "alone", "--method", method, "--lr", chosen["train.lr"], rounds=1)
    assert said["rows"][1]["accuracies"] == [alone["accuracy"]]
    assert (desk / "runs/tune/tune.png").stat().st_size > 5000
    printed = tune().out
    assert f"{said['tuned'][0]['held_out']:.2f}" in printed and "on test data" in printed


def test_a_trial_is_scored_on_what_run_would_report_with_validation(desk: Path) -> None:
    trial = tune("--json", "--over", "train.lr=0.05,0.2").json["tuned"][1]["trials"][0]
    words = [f"--set={name}={value}" for name, value in trial["settings"].items()]
    method = ("--method", "fedprox", "--seed", 1000, "--set", "data.validation=0.2")
    alone = run(desk / "alone", *method, *words, rounds=1)
    assert trial["score"] == pytest.approx(100 * alone["accuracy"])


def without_times(said: dict[str, Any]) -> dict[str, Any]:
    rows = [{**row, "seconds": None} for row in said["rows"]]
    return {**said, "rows": rows, "folder": None, "picture": None}


@pytest.mark.slow
def test_a_killed_search_ends_like_one_that_was_not(desk: Path) -> None:
    """Killed twice, also where choices depend on earlier trials: after the first ten."""
    words = [*TUNE, "--trials", 13, "--seeds", 1, "--json"]
    whole = fedloom(*words, "--out", "whole").json
    for moment in ("trial-2", "trial-12"):
        command = module_command("fedloom", *map(str, words), "--out", "killed")
        with subprocess.Popen(command, stdout=-3, stderr=-3) as process:
            begun = desk / "killed" / "trials" / "fedprox" / moment / "seed-1000" / "config.toml"
            deadline = time.monotonic() + 60
            while not begun.exists() and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.002)
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
    assert not (desk / "killed" / "trials" / "fedprox" / "trial-13").exists()
    resumed = fedloom(*words, "--out", "killed").json
    assert without_times(resumed) == without_times(whole)


def test_more_trials_continue_a_search_and_other_settings_do_not(desk: Path) -> None:
    few = tune("--json", trials=2).json["tuned"]
    more = tune("--json", trials=3).json["tuned"]
    assert [m["trials"][:2] for m in more] == [m["trials"] for m in few]
    again = tune("--json", trials=2)  # what was tried later does not count
    assert again.json["tuned"] == few and "to do" not in again.err
    said = tune("--batch", 20, "--set", "train.batch=20", code=2).flat
    assert "holds trials of 'fedavg' with other settings; repeat the earlier command" in said
    assert "with other space" in tune("--over", "train.lr=0.01..0.1", code=2).flat


@pytest.mark.slow
def test_several_at_a_time_choose_the_same(desk: Path) -> None:
    one = tune("--json", "--out", "one", trials=2).json
    two = tune("--json", "--out", "two", "--jobs", 2, trials=2).json
    assert without_times(two) == without_times(one)


def test_training_that_gives_up_counts_as_a_trial(desk: Path) -> None:
    over = ("--over", "train.lr=1e30,0.1")
    said = tune("--json", *over, trials=6).json["tuned"]
    for one in said:
        lost = [t for t in one["trials"] if t["settings"]["train.lr"] == 1e30]
        assert one["gave_up"] == len(lost) > 0 and len(one["trials"]) == 6
        assert all(t["score"] is None for t in lost) and one["chosen"]["train.lr"] == 0.1
    said = tune("--over", "train.lr=1e30,2e30", "--out", "none", code=1).flat
    assert "training gave up in every trial of 'fedavg'; use a smaller learning rate" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--methods", "fedavg,fedporx"), "did you mean 'fedprox'?"),
        (("--methods", "fedavg,fedavg"), "names a method twice"),
        (("--methods", ""), "--methods names no method"),
        (("--over", "train.lrr=0.1,1"), "no setting 'train.lrr'; did you mean 'lr'?"),
        (("--over", "train.lr=-1..1"), "train.lr=-1 should be greater than 0"),
        (("--over", "method.fedprox.my=0..1"), "no parameter 'my'; did you mean 'mu'?"),
        (("--over", "method.moon.mu=0..1"), "no tuned method 'moon'"),
        (("--over", "data.clients=5,6"), "would change the task, not how a method trains"),
        (("--trials", 600), "2 methods with 601 runs each are 1,202 runs;"),
    ],
)
def test_mistakes_are_found_before_the_first_trial(
    words: tuple[Any, ...], message: str, desk: Path
) -> None:
    assert message in tune(*words, code=2).flat
    assert not (desk / "runs").exists()


def test_a_damaged_file_of_trials_is_named(desk: Path) -> None:
    (desk / "runs/tune").mkdir(parents=True)
    (desk / "runs/tune/trials.sqlite").write_text("no database " * 100)
    assert "the trials in 'runs/tune/trials.sqlite' cannot be read" in tune(code=1).flat


def test_personal_models_are_judged_by_their_own_score(desk: Path) -> None:
    said = tune("--methods", "fedavg,finetune", "--json", trials=1).json
    file = next((desk / "runs/tune/trials/finetune").rglob("result.json"))
    scores = json.loads(file.read_text())["summary"]["personal_models"]
    assert said["tuned"][1]["held_out"] == pytest.approx(100 * scores["mean_class_recall"]["mean"])
