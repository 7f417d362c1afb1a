"""Estimates of planned runs: rates of runs that exist, shared rounds, a limit of hours."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedloom.claims.estimate import Estimate, Rate, RunEstimate, estimate, in_words, measure
from fedloom.experiment.schedule import PlannedRun
from fedloom.settings.config import load
from support.made_up_runs import config, write_run


def planned(folder: Path, seed: int, rounds: int = 5, method: str = "fedavg") -> PlannedRun:
    settings = config(seed, rounds).model_dump(mode="json")
    made = load({**settings, "method": method, "sample": {"name": "uniform", "per_round": 1}})
    return PlannedRun(method, seed, folder / method / f"seed-{seed}", made)


def test_rates_come_from_runs_that_exist(tmp_path: Path) -> None:
    done = PlannedRun("fedavg", 0, tmp_path / "done", config(0, 3))
    write_run(done.path, 0, [0.1, 0.2, 0.3], [1.0, 1.0, 1.0])
    todo = PlannedRun("fedavg", 1, tmp_path / "todo", config(1, 30))
    found = estimate([done, todo])
    assert found.finished == 1
    (one,) = found.runs
    assert one.rate.source == "rounds of earlier runs"
    assert one.seconds == pytest.approx(30 * 2.0 + 30 * 1.0)  # as write_run has it


def test_a_run_that_takes_over_rounds_costs_only_what_follows(tmp_path: Path) -> None:
    done = PlannedRun("fedavg", 0, tmp_path / "done", config(0, 3))
    write_run(done.path, 0, [0.1, 0.2, 0.3], [1.0, 1.0, 1.0])
    raw = config(0, 3).model_dump(mode="json")
    tuned = PlannedRun("finetune", 0, tmp_path / "tuned", load({**raw, "method": "finetune"}))
    (one,) = estimate([tuned, done]).runs
    assert one.shared and one.seconds == pytest.approx(one.rate.personal)


def test_a_few_steps_are_timed_where_nothing_was_run(tmp_path: Path) -> None:
    small = {"model": "mlp(layers=1,width=4)", "rounds": 100, "data": {"name": "fashion-mnist"}}
    settings = load({**small, "sample": {"name": "uniform", "per_round": 2}})
    rate = measure(settings)
    assert rate.source == "a few steps timed now" and rate.round > 0 < rate.evaluation
    more = measure(replace_epochs(settings, 50))
    assert more.round > 3 * rate.round


def test_what_follows_the_rounds_is_not_timed() -> None:
    method = {"name": "finetune", "finetune": {"lr": 0.02, "batch": 16}}
    small = {"model": "mlp(layers=1,width=4)", "data": {"name": "fashion-mnist"}, "method": method}
    assert measure(load({**small, "sample": {"name": "uniform", "per_round": 2}})).personal > 0


def replace_epochs(settings, epochs):  # type: ignore[no-untyped-def]
    raw = settings.model_dump(mode="json")
    return load({**raw, "train": {**raw["train"], "epochs": epochs}})


def test_only_runs_that_fit_into_the_hours() -> None:
    rate = Rate(1.0, 1.0, 1.0, "made up")
    one = RunEstimate(PlannedRun("fedavg", 0, Path("x"), config(0, 1)), 1800.0, False, rate)
    found = Estimate((one, one, replace(one, seconds=1900.0)), 0)
    assert len(found.within(None, 1)) == 3
    assert len(found.within(1.0, 1)) == 2
    assert len(found.within(0.4, 1)) == 0
    assert len(found.within(1.0, 2)) == 3
    assert in_words(found.seconds) == "91.7 min"
