"""Runs with metrics: equal to scikit-learn's, on every engine, resumed, and of the user's own."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import metrics as sklearn_metrics
from torch import Tensor

from fedloom import Experiment, UserError, compare
from fedloom import open as open_run
from fedloom.core.errors import RunError
from fedloom.metrics.records import RunResult

SAMPLES, CLIENTS = 240, 6
DRAWS = np.random.default_rng(0)
X = DRAWS.normal(size=(SAMPLES, 5)).astype(np.float32)
CLASSES = ((X[:, 0] > 0).astype(np.int64) + (X[:, 1] > 0.5)).astype(np.int64)
VALUES = (X @ [2.0, -1.0, 0.5, 0.0, 0.0] + 3).astype(np.float32)
LABELS = (X[:, :3] + 0.3 * DRAWS.normal(size=(SAMPLES, 3)) > 0).astype(np.float32)
OWNERS = np.repeat(np.arange(CLIENTS), SAMPLES // CLIENTS)
TARGETS = {"classification": CLASSES, "regression": VALUES, "multilabel": LABELS}
ALL = {"classification": ["auroc", "macro_f1", "balanced_accuracy", "calibration_error"]}


def experiment(task: str, method: str = "fedavg", **more: Any) -> Experiment:
    settings = {
        "metrics": ALL.get(task),
        "rounds": 2,
        "engine": "inprocess",
        "per_round": 3,
        **more,
    }
    y = TARGETS[task]
    return Experiment(
        method,
        "mlp",
        (X[:180], y[:180]),
        test=(X[180:], y[180:]),
        client_ids=OWNERS[:180],
        task=task,
        dtype="float64",
        lr=0.1,
        **settings,
    )


def probabilities(run: Any, task: str) -> np.ndarray:
    """Predictions of the final model on the test data, by plain torch."""
    with torch.inference_mode():
        outputs = run.model(run.normalise(X[180:]))
    return {"classification": outputs.softmax(1), "multilabel": outputs.sigmoid()}[task].numpy()


def test_metrics_of_a_classifier_are_those_of_scikit_learn() -> None:
    run = experiment("classification").run()
    p, y = probabilities(run, "classification"), CLASSES[180:]
    found = run.result.metrics
    assert found["auroc"] == pytest.approx(
        sklearn_metrics.roc_auc_score(y, p, multi_class="ovr"), abs=1e-12
    )
    guess = p.argmax(1)
    assert found["macro_f1"] == pytest.approx(
        sklearn_metrics.f1_score(y, guess, average="macro"), abs=1e-12
    )
    assert found["balanced_accuracy"] == pytest.approx(
        sklearn_metrics.balanced_accuracy_score(y, guess), abs=1e-12
    )
    assert run.history[-1].metrics == found


def test_metrics_of_labels_are_those_of_scikit_learn() -> None:
    run = experiment("multilabel").run()
    p, y = probabilities(run, "multilabel"), LABELS[180:]
    found = run.result.metrics
    assert found["auroc"] == pytest.approx(sklearn_metrics.roc_auc_score(y, p), abs=1e-12)
    assert found["macro_f1"] == pytest.approx(
        sklearn_metrics.f1_score(y, p > 0.5, average="macro"), abs=1e-12
    )
    assert run.result.accuracy == found["label_accuracy"]
    assert run.result.accuracy == pytest.approx(np.mean((p > 0.5) == (y > 0.5)), abs=1e-12)
    assert run.result.score_name == "label accuracy"


def kept_predictions() -> tuple[Any, list[np.ndarray]]:
    kept: list[np.ndarray] = []

    def worst(predictions: Tensor, targets: Tensor) -> float:
        kept[:] = [predictions.numpy(), targets.numpy()]
        return float((predictions.reshape(targets.shape) - targets).abs().max())

    return worst, kept


def test_metrics_of_values_are_those_of_scikit_learn_and_a_function_sees_the_same() -> None:
    worst, kept = kept_predictions()
    run = experiment("regression", metrics={"mae": "mae", "rmse": "rmse", "worst": worst}).run()
    p, y = kept
    np.testing.assert_allclose(y.reshape(-1), VALUES[180:])
    found = run.result.metrics
    assert found["worst"] == pytest.approx(np.abs(p.reshape(-1) - y.reshape(-1)).max())
    assert found["mae"] == pytest.approx(sklearn_metrics.mean_absolute_error(y, p), abs=1e-12)
    rmse = sklearn_metrics.root_mean_squared_error(y, p)
    assert found["rmse"] == pytest.approx(rmse, abs=1e-12)
    assert run.result.accuracy == found["r2"]
    assert found["r2"] == pytest.approx(sklearn_metrics.r2_score(y, p), abs=1e-12)


@pytest.mark.parametrize("task", TARGETS)
def test_personal_models_have_metrics_by_client(task: str) -> None:
    result = experiment(task, "ditto").run().result
    scores = result.personal_models
    names = [*(ALL.get(task) or result.metrics)]
    assert list(scores.metrics) == list(scores.by_client) == names
    for name, values in scores.by_client.items():
        assert len(values) == result.clients
        assert scores.metrics[name].mean == pytest.approx(np.mean(values))
        worst = max if name in ("mae", "rmse", "calibration_error") else min
        assert scores.metrics[name].worst_tenth == worst(values)
    assert (scores.mean_class_recall is None) == (task != "classification")


@pytest.mark.posix
@pytest.mark.parametrize("task", TARGETS)
def test_the_pool_has_the_same_bits(task: str) -> None:
    here = experiment(task, "ditto").run().result
    there = experiment(task, "ditto", engine="pool", workers=1).run().result
    assert without_times(here) == without_times(there)


def without_times(result: RunResult) -> dict[str, Any]:
    return {n: v for n, v in result.to_json().items() if n not in ("seconds", "identity")}


def test_own_test_samples_give_metrics_of_the_global_model_by_client() -> None:
    users = {"client_ids": OWNERS, "evaluate": {"on": "own"}}
    run = Experiment(
        "fedavg", "mlp", (X, VALUES), task="regression", rounds=2, per_round=3, **users
    ).run()
    scores = run.result.global_model
    assert list(scores.by_client) == ["mae", "rmse", "r2"]
    assert len(scores.by_client["mae"]) == CLIENTS
    assert scores.metrics["rmse"].worst_tenth == max(scores.by_client["rmse"])
    assert run.history[-1].global_model.metrics == scores.metrics


def test_a_run_in_a_folder_reads_the_same_and_is_compared(tmp_path: Path) -> None:
    runs = [experiment("regression", m).run(tmp_path / m) for m in ("fedavg", "ditto")]
    again = open_run(tmp_path / "ditto", data=(X[:180], VALUES[:180]), test=(X[180:], VALUES[180:]),
                     client_ids=OWNERS[:180], task="regression")  # fmt: skip
    assert again.result.metrics == runs[1].result.metrics
    assert again.result.personal_models == runs[1].result.personal_models
    table = compare(*runs)
    assert "personal" in str(table) and "R2" in str(table) and "%" not in str(table)
    assert table.to_json()["rows"][1]["metrics"]["mae"] == runs[1].result.metrics["mae"]
    page = table.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "R2 by round" in page and 'id="metrics"' in page and "Recall by class" not in page


def test_runs_of_different_tasks_are_not_compared() -> None:
    with pytest.raises(UserError, match=r"differ|task"):
        compare(experiment("regression").run(), experiment("multilabel").run())


def test_no_metric_is_asked_for_unless_it_is_named() -> None:
    result = experiment("classification", metrics=None).run().result
    assert result.metrics == {} and "metrics" not in result.to_json()


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        (["auorc"], "did you mean 'auroc'"),
        ({"mine": lambda p, y: p.no_such()}, "metric 'mine' failed .* fix the function"),
        ({"mine": lambda p, y: "high"}, "metric 'mine' failed .* fix the function"),
        ({"mine": 3}, "metric 'mine' is 3"),
        ("auroc", "pass a list"),
    ],
)
def test_a_wrong_metric_is_refused_before_round_0(metrics: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        experiment("classification", metrics=metrics).check()


def test_a_metric_that_is_not_defined_is_none() -> None:
    result = experiment("classification", metrics={"none": lambda p, y: math.nan}).run().result
    assert result.metrics == {"none": None}


def test_a_score_that_is_no_number_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedloom.experiment.evaluation.task_score", lambda *_: -math.inf)
    with pytest.raises(RunError, match=r"R2 of the model after round 1 is -inf.*lower train.lr"):
        experiment("regression").run()


@pytest.mark.parametrize("task", TARGETS)
def test_the_model_of_a_client_has_the_scores_of_the_run(task: str) -> None:
    run = experiment(task, "ditto").run()
    client, scores = run.client(1), run.result.personal_models
    assert client.metrics == {name: values[1] for name, values in scores.by_client.items()}
    if task == "regression":
        assert client.accuracy == scores.by_client["r2"][1] and client.mean_class_recall is None


def test_clients_that_share_a_model_and_its_test_samples_all_have_its_score() -> None:
    table = compare(*(experiment("regression", method).run() for method in ("fedavg", "ditto")))
    plain, own = table.rows
    assert plain.over_clients("r2") == plain.over_clients("r2", "worst_tenth") == plain.metric("r2")
    assert plain.over_clients("r2", "std") is None and not plain.has_client_scores
    assert own.over_clients("r2", "worst_tenth") < own.over_clients("r2")
