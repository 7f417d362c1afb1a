"""`fedloom.sweep` and `fedloom.tune` in Python."""

from pathlib import Path

import numpy as np
import pytest
from torch import nn

import fedloom as fl
from api.tiny import experiment


def test_a_sweep_is_a_comparison_with_a_row_per_combination(tmp_path: Path) -> None:
    over = {"train.lr": [0.01, 0.1], "method": ["fedavg", "fedprox(mu=1)"]}
    swept = fl.sweep(experiment(rounds=1), over, seeds=2, folder=tmp_path)
    names = [f"train.lr={lr} method={m}" for lr in (0.01, 0.1) for m in over["method"]]
    assert [row.name for row in swept.rows] == names and swept.notes == ()
    alone = experiment(rounds=1, method="fedprox(mu=1)", lr=0.1, seed=1).run()
    assert swept[names[-1]].accuracies[1] == alone.accuracy
    before = {p: p.read_bytes() for p in tmp_path.rglob("metrics.jsonl")}
    again = fl.sweep(experiment(rounds=1), over, seeds=2, folder=tmp_path)
    assert str(again) == str(swept) and len(before) == 8
    assert {p: p.read_bytes() for p in before} == before  # with the seconds of each round


def test_a_sweep_takes_python_objects(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 4))
    swept = fl.sweep(experiment(rounds=1, model=model), {"lr": [0.01, 0.1]})
    assert [row.name for row in swept.rows] == ["train.lr=0.01", "train.lr=0.1"]


def test_mistakes_are_found_before_the_first_run(tmp_path: Path) -> None:
    for over, message in (
        ({}, "varies nothing"),
        ({"train.lr": []}, "lists no values"),
        ({"train.lr": np.array([0.1])}, "is no list; write a list"),
        (["train.lr"], "is no dictionary of settings"),
        ({1: [0.1]}, "is no dictionary of settings"),
        ({"train.lr": [0.1, -1]}, "train.lr=-1 should be greater than 0"),
        ({"train.lr": [0.1, 1], "method": ["fedavg", "pfedme"]}, "does not use train.lr"),
        ({"train.momentums": [0.1]}, "did you mean 'momentum'"),
    ):
        with pytest.raises(fl.UserError, match=message):
            fl.sweep(experiment(), over, folder=tmp_path)
    for counts in ({"seeds": 0}, {"seeds": "2"}, {"random": 0}, {"random": 1.5}):
        with pytest.raises(fl.UserError, match="must be a whole number of at least 1"):
            fl.sweep(experiment(), {"lr": "0.1..1"}, folder=tmp_path, **counts)
    for counts in ({"trials": 0}, {"seeds": "2"}, {"tuning_seeds": None}):
        with pytest.raises(fl.UserError, match="must be a whole number of at least 1"):
            fl.tune(experiment(), ["fedavg"], tmp_path, **counts)
    with pytest.raises(fl.UserError, match="methods='fedavg' is no list"):
        fl.tune(experiment(), "fedavg", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_tuning_compares_methods_at_their_best(tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="tuning needs Optuna: the extra 'tune'")
    compared, tuned = fl.tune(
        experiment(rounds=1), ["fedavg", "fedprox"], tmp_path, trials=2, seeds=2
    )
    assert [row.name for row in compared.rows] == ["fedavg", "fedprox"]
    assert [len(one.trials) for one in tuned] == [2, 2]
    lr = dict(tuned[0].chosen)["train.lr"]
    assert compared.runs["fedavg"][0].config.train.lr == lr
    with pytest.raises(fl.UserError, match=r"tune\(\) needs methods"):
        fl.tune(experiment(model=nn.Linear(2, 2)), ["fedavg"], tmp_path)
