"""Scores worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.core.evaluate import ClassCounts, Evaluation, count_correct
from fedloom.metrics import evaluate
from fedloom.metrics.client_scores import Spread
from fedloom.metrics.evaluate import (
    class_groups,
    global_scores,
    metric_scores,
    metric_values,
    personal_scores,
    recall_by_group,
    score_clients,
    spread,
    task_score,
)
from fedloom.metrics.registry import chosen_metrics


class Echo(nn.Module):
    """Predicts the class that the input names."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.one_hot(x, 3).double() * 100


def test_correct_predictions_are_counted_by_class_over_batches() -> None:
    predicted, true = torch.tensor([0, 0, 1, 2, 1]), torch.tensor([0, 1, 1, 2, 0])
    batches = [(predicted[:3], true[:3]), (predicted[3:], true[3:])]
    result = count_correct(Chain({"model": Echo()}), batches, 3)
    assert result.hits.tolist() == [1, 1, 1]
    assert result.seen.tolist() == [2, 2, 1]
    assert result.accuracy == pytest.approx(3 / 5)
    assert result.recall.tolist() == [0.5, 0.5, 1.0]
    # two wrong predictions at 100 nats each, three correct ones at nearly none
    assert result.loss == pytest.approx(2 * 100 / 5)


def test_class_groups_are_ranked_by_training_samples_and_then_by_class() -> None:
    assert class_groups(torch.tensor([10, 90, 10, 50])) == {
        "head": [1, 3],
        "middle": [0],
        "tail": [2],
    }
    assert class_groups(torch.tensor([7, 7, 7])) == {}


def test_a_group_without_test_samples_is_left_out() -> None:
    result = ClassCounts(torch.tensor([1.0, 0.0, 4.0]), torch.tensor([2.0, 0.0, 4.0]), 0.0)
    assert recall_by_group(result, {"head": [0, 2], "tail": [1]}) == {"head": 0.75}


def test_clients_are_scored_by_their_labels_and_by_their_classes() -> None:
    recall, seen = torch.tensor([1.0, 0.5, 0.0]), torch.tensor([10.0, 10.0, 0.0])
    counts = torch.tensor([[3, 1, 0], [0, 0, 9], [0, 2, 5]])
    weighted, mean_recall = score_clients(recall, seen, counts)
    # class 2 has no test samples, so it counts for no client
    assert weighted.tolist() == pytest.approx([(3 * 1 + 1 * 0.5) / 4, 0.0, 0.5])
    assert mean_recall.tolist() == pytest.approx([0.75, 0.0, 0.5])


def test_clients_scored_in_pieces_have_the_same_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    counts = torch.randint(0, 9, (7, 10), generator=generator)
    recall = torch.rand(10, generator=generator, dtype=torch.float64)
    own_recall = torch.rand(7, 10, generator=generator, dtype=torch.float64)
    seen = torch.arange(10)
    at_once = [score_clients(r, seen, counts) for r in (recall, own_recall)]
    monkeypatch.setattr(evaluate, "CLIENTS_AT_ONCE", 3)
    in_pieces = [score_clients(r, seen, counts) for r in (recall, own_recall)]
    for (a, b), (c, d) in zip(at_once, in_pieces, strict=True):
        assert torch.equal(a, c) and torch.equal(b, d)


def test_spread_takes_the_worst_tenth() -> None:
    scores = torch.arange(1, 21, dtype=torch.float64)
    assert spread(scores) == Spread(10.5, pytest.approx(33.25**0.5), 1.5)


def test_scores_of_the_global_model() -> None:
    result = ClassCounts(torch.tensor([1.0, 3.0]), torch.tensor([2.0, 4.0]), 0.25)
    scores = global_scores(result, torch.tensor([[9, 1]]))
    assert result.accuracy == pytest.approx(4 / 6)
    assert scores.class_recall == (0.5, 0.75)
    assert scores.group_recall == {"head": 0.5, "middle": 0.75}
    assert scores.label_weighted_accuracy.mean == pytest.approx(0.9 * 0.5 + 0.1 * 0.75)
    assert scores.correct == scores.test_samples == ()


def test_personal_models_are_scored_on_the_classes_of_their_clients() -> None:
    """Two clients and three classes; four test samples of each class, but none of the last."""
    seen = torch.tensor([4.0, 4.0, 0.0])
    hits = torch.tensor([[4.0, 1.0, 0.0], [2.0, 3.0, 0.0]], dtype=torch.float64)
    counts = torch.tensor([[9, 0, 1], [1, 3, 0]])
    scores = personal_scores(hits, seen, counts)
    assert scores.mean_class_recall.mean == pytest.approx((1.0 + (0.5 + 0.75) / 2) / 2)
    assert scores.mean_class_recall.worst_tenth == pytest.approx(0.625)
    weighted = (1.0 + (0.5 + 3 * 0.75) / 4) / 2
    assert scores.label_weighted_accuracy.mean == pytest.approx(weighted)
    # class 0 belongs to both clients, class 1 to the second, class 2 has no test samples
    assert scores.class_recall == (0.75, 0.75, None)
    assert scores.group_recall == {"head": 0.75, "middle": 0.75}
    assert scores.correct == ((4, 1, 0), (2, 3, 0))
    assert scores.test_samples == (4, 4, 0)


def test_the_worst_tenth_has_the_highest_values_where_lower_is_better() -> None:
    values = torch.arange(20.0).double()
    assert spread(values).worst_tenth == 0.5
    assert spread(values, lower_is_better=True).worst_tenth == 18.5


def scored(loss: float, **metrics: float) -> Evaluation:
    nothing = torch.zeros(0, dtype=torch.float64)
    return Evaluation(ClassCounts(nothing, nothing, loss), 4.0, metrics)


def test_clients_in_which_a_metric_is_not_defined_do_not_count() -> None:
    metrics = chosen_metrics("regression", ["mae"])
    clients = [scored(0.1, mae=1.0, r2=0.5), scored(0.2, mae=3.0, r2=math.nan)]
    values = [metric_values(metrics, client) for client in clients]
    scores = metric_scores(metrics, [*values, None], {2: "late"})
    assert scores.by_client == {"mae": (1.0, 3.0, None), "r2": (0.5, None, None)}
    assert scores.metrics == {"mae": Spread(2.0, 1.0, 3.0), "r2": Spread(0.5, 0.0, 0.5)}
    assert scores.unscored == {2: "late"} and scores.mean_class_recall is None


def test_a_metric_that_no_client_has_is_left_out() -> None:
    metrics = chosen_metrics("regression", [])
    scores = metric_scores(metrics, [metric_values(metrics, scored(0.1, r2=math.nan))])
    assert scores.metrics == {} and scores.by_client == {"r2": (None,)}


def test_the_score_is_the_share_that_is_right_or_r2() -> None:
    counts = ClassCounts(torch.tensor([3.0]), torch.tensor([4.0]), 0.1)
    assert task_score("multilabel", Evaluation(counts, 2.0)) == 0.75
    assert task_score("regression", scored(0.1, r2=-2.0)) == -2.0
