"""Metrics by name, functions of the user, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fedloom.core import user_code
from fedloom.core.errors import UserError
from fedloom.core.evaluate import ClassCounts, Evaluation
from fedloom.core.learning_task import TASKS
from fedloom.metrics.registry import chosen_metrics, metrics_of
from fedloom.metrics.score import SCORES


def test_every_task_has_a_score_of_the_same_name() -> None:
    assert {task.name: task.score for task in TASKS.values()} == {
        name: score.name for name, score in SCORES.items()
    }


@pytest.mark.parametrize(
    ("task", "names"),
    [
        ("classification", []),
        ("multilabel", ["auroc", "macro_f1", "label_accuracy"]),
        ("regression", ["mae", "rmse", "r2"]),
        ("next-token", ["token_accuracy", "perplexity"]),
    ],
)
def test_the_default_is_none_for_classification_and_all_otherwise(
    task: str, names: list[str]
) -> None:
    assert list(chosen_metrics(task, None)) == names


def test_the_metric_that_is_the_score_is_always_there() -> None:
    assert list(chosen_metrics("regression", ["mae"])) == ["mae", "r2"]
    assert list(chosen_metrics("classification", ["auroc"])) == ["auroc"]
    assert list(chosen_metrics("classification", [])) == []


def test_which_are_better_when_lower() -> None:
    lower = {m.name for task in TASKS for m in metrics_of(task).values() if m.lower_is_better}
    assert lower == {"calibration_error", "mae", "rmse", "perplexity"}


def test_tokens_need_totals_only() -> None:
    counts = ClassCounts(torch.tensor([3.0]), torch.tensor([4.0]), math.log(7))
    values = {m.name: m.value(Evaluation(counts, 4.0)) for m in metrics_of("next-token").values()}
    assert values == {"token_accuracy": 0.75, "perplexity": pytest.approx(7)}
    far = Evaluation(ClassCounts(counts.hits, counts.seen, 1e4), 4.0)
    assert metrics_of("next-token")["perplexity"].value(far) == math.inf


def test_a_function_in_a_file_is_named_like_the_function(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def cost(p, y):\n    return 2.0\ncost.lower_is_better = True\n")
    user_code.allow([f"{file}:cost"])
    metric = chosen_metrics("classification", [f"{file}:cost"])["cost"]
    assert metric.lower_is_better and metric.function is not None
    assert metric.function(torch.zeros(1), torch.zeros(1)) == 2.0


def test_a_function_passed_from_python_keeps_the_name_it_was_given() -> None:
    def largest(predictions: Tensor, targets: Tensor) -> float:
        return float(predictions.max())

    name = "python:top-0123456789ab"
    function = chosen_metrics("regression", [name], {name: largest})["top"].function
    assert function is not None and function(torch.tensor([1.0, 3.0]), torch.zeros(2)) == 3.0


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["auorc"], "no metric 'auorc'; did you mean 'auroc'"),
        (["mae"], "no metric 'mae'"),
        (["auroc", "auroc"], "'auroc' twice"),
        (["nowhere.py:f"], "not from the command line"),
    ],
)
def test_a_wrong_name_is_refused(names: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        chosen_metrics("classification", names)
