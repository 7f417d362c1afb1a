"""Evaluations of every task, one copy from the device, and what is refused of an answer."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.core.errors import RunError
from fedloom.core.evaluate import (
    ClassCounts,
    Evaluation,
    count_correct,
    evaluate_model,
    evaluation_problem,
    packed,
    unpacked,
)
from fedloom.core.learning_task import CLASSIFICATION, TASKS, LearningTask
from fedloom.metrics import of_labels, of_tokens, of_values


class Echo(nn.Module):
    """Returns its input as the outputs."""

    def forward(self, x: Tensor) -> Tensor:
        return x


ECHO = Chain({"model": Echo()})


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def tokens(n: int, places: int, vocabulary: int) -> Tensor:
    y = torch.randint(vocabulary, (n, places), generator=torch.Generator().manual_seed(1))
    y[0, 0] = y[2, 1] = -100
    return y


CASES = {
    "classification": (draw(9, 4), torch.arange(9) % 4, 4),
    "multilabel": (draw(9, 3), (draw(9, 3, seed=1) > 0).float(), 3),
    "regression": (draw(9, 1), draw(9, seed=1), 1),
    "next-token": (draw(9, 5, 4), tokens(9, 5, 4), 4),
}


def batches(task: str, size: int) -> list[tuple[Tensor, Tensor]]:
    outputs, y, _ = CASES[task]
    return list(zip(outputs.split(size), y.split(size), strict=True))


def before(batches: list[tuple[Tensor, Tensor]], classes: int) -> ClassCounts:
    """As it was computed batch by batch, with the host waiting three times in each."""
    hits, seen, loss = (torch.zeros(classes, dtype=torch.float64) for _ in range(3))
    for logits, y in batches:
        hits += torch.bincount(y[logits.argmax(1) == y].cpu(), minlength=classes)
        seen += torch.bincount(y.cpu(), minlength=classes)
        loss[0] += F.cross_entropy(logits, y, reduction="sum").cpu()
    return ClassCounts(hits, seen, float(loss[0] / seen.sum().clamp(min=1)))


@pytest.mark.parametrize("size", [1, 2, 4, 9])
def test_classification_has_the_bits_of_the_sum_over_batches(size: int) -> None:
    x, y = 3 * draw(101, 7), torch.arange(101) % 6
    given = list(zip(x.split(size), y.split(size), strict=True))
    found, expected = count_correct(ECHO, given, 7), before(given, 7)
    assert found.loss == expected.loss
    assert torch.equal(found.hits, expected.hits) and torch.equal(found.seen, expected.seen)
    assert found.hits.dtype == expected.hits.dtype == torch.float64


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_the_loss_is_that_of_all_samples_at_once(task: LearningTask) -> None:
    outputs, y, classes = CASES[task.name]
    found = evaluate_model(ECHO, batches(task.name, 4), classes, task)
    assert found.counts.loss == pytest.approx(float(task.loss(outputs, y)), rel=1e-6)
    assert found.units == float(task.units(y))
    assert not len(found.predictions)


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_pieces_add_up_to_the_whole(task: LearningTask) -> None:
    classes = CASES[task.name][2]
    given = batches(task.name, 2)
    whole = evaluate_model(ECHO, given, classes, task, keep_predictions=True)
    halves = [
        evaluate_model(ECHO, part, classes, task, keep_predictions=True)
        for part in (given[:2], [], given[2:])
    ]
    total = Evaluation.total(halves)
    assert total.units == whole.units
    assert total.counts.loss == pytest.approx(whole.counts.loss, rel=1e-12)
    assert torch.equal(total.counts.hits, whole.counts.hits)
    assert torch.equal(total.predictions, whole.predictions)
    assert torch.equal(total.targets, whole.targets)


@pytest.mark.parametrize(
    ("name", "metric"),
    [("multilabel", of_labels.label_accuracy), ("next-token", of_tokens.token_accuracy)],
)
def test_the_share_that_is_right_is_that_of_the_metric(name: str, metric: object) -> None:
    task, classes = TASKS[name], CASES[name][2]
    found = evaluate_model(ECHO, batches(name, 4), classes, task, keep_predictions=True)
    assert callable(metric)
    assert found.counts.accuracy == metric(found.predictions, found.targets)
    assert found.counts.seen.shape == (1,)


def test_metrics_take_the_place_of_predictions() -> None:
    task = TASKS["regression"]
    found = evaluate_model(ECHO, batches("regression", 4), 1, task, keep_predictions=True)
    outputs, y, _ = CASES["regression"]
    with_metrics = found.with_metrics({"r2": of_values.r2, "mae": of_values.mae})
    assert with_metrics.metrics == {
        "r2": of_values.r2(outputs, y),
        "mae": of_values.mae(outputs, y),
    }
    assert not len(with_metrics.predictions) and not len(with_metrics.targets)


def test_without_a_sample_metrics_are_not_asked() -> None:
    nothing = evaluate_model(ECHO, [], 3, CLASSIFICATION, keep_predictions=True)
    assert nothing.units == 0 and nothing.counts.seen.tolist() == [0, 0, 0]
    assert math.isnan(nothing.with_metrics({"mine": lambda p, y: 1 / 0}).metrics["mine"])


def test_a_metric_that_fails_is_named() -> None:
    found = evaluate_model(ECHO, batches("regression", 4), 1, TASKS["regression"], True)
    with pytest.raises(RunError, match=r"metric 'mine' failed .*\(9,\).*\(9,\).*KeyError"):
        found.with_metrics({"mine": lambda p, y: {}["x"]})


def test_one_copy_holds_tensors_of_all_types() -> None:
    tensors = [draw(3), torch.arange(5), draw(2, 2).double(), draw(3) > 0, torch.zeros(0)]
    copies = unpacked(packed(tensors), tensors)
    assert all(
        torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(tensors, copies, strict=True)
    )


def test_the_host_waits_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: until the end nothing is read from the device, then everything by one copy."""
    read: list[str] = []
    monkeypatch.setattr(Tensor, "cpu", lambda t: read.append("cpu") or t)
    monkeypatch.setattr(Tensor, "item", lambda t: read.append("item") or 0)
    monkeypatch.setattr("fedloom.core.evaluate.on_host", lambda ts: unpacked(packed(ts).cpu(), ts))
    found = evaluate_model(ECHO, batches("classification", 2), 4, keep_predictions=True)
    assert read == ["cpu"]
    assert found.counts.seen.sum() == 9


SCORED = Evaluation(ClassCounts(torch.ones(2), torch.full((2,), 3.0), 0.5), 6.0)
HELD = replace(SCORED, predictions=draw(6, 2), targets=torch.zeros(6))


@pytest.mark.parametrize(
    ("given", "metrics", "predicted", "problem"),
    [
        (SCORED, [], False, None),
        (HELD, [], True, None),
        (replace(SCORED, metrics={"auroc": math.nan}), ["auroc"], False, None),
        (SCORED.counts, [], False, "ClassCounts"),
        (replace(SCORED, counts=ClassCounts(torch.ones(3), torch.ones(3), 0.0)), [], False, "(3,)"),
        (
            replace(SCORED, counts=ClassCounts(torch.ones(2), torch.zeros(2), 0.0)),
            [],
            False,
            "more",
        ),
        (replace(SCORED, units=math.nan), [], False, "nan"),
        (replace(SCORED, units=-1.0), [], False, "-1"),
        (replace(SCORED, metrics={"mine": 1.0}), [], False, "mine"),
        (SCORED, ["auroc"], False, "none"),
        (SCORED, [], True, "0 predictions"),
        (HELD, [], False, "6 predictions"),
        (replace(HELD, targets=torch.zeros(5)), [], True, "6 predictions for 5"),
    ],
)
def test_what_is_not_an_evaluation_is_refused(
    given: object, metrics: list[str], predicted: bool, problem: str | None
) -> None:
    found = evaluation_problem(given, CLASSIFICATION, 2, metrics, predicted)
    assert found is None if problem is None else problem in (found or "")
