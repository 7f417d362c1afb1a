"""Scores worked out by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.core.evaluate import ClassCounts, count_correct
from fedloom.metrics.evaluate import (
    class_groups,
    client_scores,
    personal_summary,
    recall_by_group,
    spread,
    summary,
)


class Echo(nn.Module):
    """Logits that say what the input says."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.one_hot(x, 3).double() * 100


def test_a_tally_counts_hits_by_class_over_batches() -> None:
    said, true = torch.tensor([0, 0, 1, 2, 1]), torch.tensor([0, 1, 1, 2, 0])
    batches = [(said[:3], true[:3]), (said[3:], true[3:])]
    result = count_correct(Chain({"model": Echo()}), batches, 3)
    assert result.hits.tolist() == [1, 1, 1]
    assert result.seen.tolist() == [2, 2, 1]
    assert result.accuracy == pytest.approx(3 / 5)
    assert result.recall.tolist() == [0.5, 0.5, 1.0]
    assert result.loss == pytest.approx(
        2 * 100 / 5
    )  # two misses at 100 nats each, three hits at nearly none


def test_thirds_rank_by_training_samples_and_break_ties_by_class() -> None:
    assert class_groups(torch.tensor([10, 90, 10, 50])) == {
        "head": [1, 3],
        "middle": [0],
        "tail": [2],
    }
    assert class_groups(torch.tensor([7, 7, 7])) == {}


def test_a_group_without_test_samples_is_left_out() -> None:
    result = ClassCounts(torch.tensor([1.0, 0.0, 4.0]), torch.tensor([2.0, 0.0, 4.0]), 0.0)
    assert recall_by_group(result, {"head": [0, 2], "tail": [1]}) == {"head": 0.75}


def test_client_scores_weigh_by_labels_and_by_class() -> None:
    recall, seen = torch.tensor([1.0, 0.5, 0.0]), torch.tensor([10.0, 10.0, 0.0])
    counts = torch.tensor([[3, 1, 0], [0, 0, 9], [0, 2, 5]])
    weighted, mean_recall = client_scores(recall, seen, counts)
    assert weighted.tolist() == pytest.approx(
        [(3 * 1 + 1 * 0.5) / 4, 0.0, 0.5]
    )  # class 2 has no test samples: it counts for nobody
    assert mean_recall.tolist() == pytest.approx([0.75, 0.0, 0.5])


def test_spread_takes_the_worst_tenth() -> None:
    scores = torch.arange(1, 21, dtype=torch.float64)
    assert spread(scores) == {"mean": 10.5, "std": pytest.approx(33.25**0.5), "worst_tenth": 1.5}


def test_a_summary_is_plain_numbers() -> None:
    result = ClassCounts(torch.tensor([1.0, 3.0]), torch.tensor([2.0, 4.0]), 0.25)
    line = summary(result, torch.tensor([9, 1]), torch.tensor([[9, 1]]))
    assert line["accuracy"] == pytest.approx(4 / 6)
    assert line["per_class"] == [0.5, 0.75]
    assert line["groups"] == {"head": 0.5, "middle": 0.75}
    assert line["clients"]["weighted"]["mean"] == pytest.approx(0.9 * 0.5 + 0.1 * 0.75)


def test_own_models_are_asked_for_the_classes_of_their_clients() -> None:
    """Two clients, three classes, four test samples each but of the last, of which there are none."""
    seen = torch.tensor([4.0, 4.0, 0.0])
    hits = torch.tensor([[4.0, 1.0, 0.0], [2.0, 3.0, 0.0]], dtype=torch.float64)
    counts = torch.tensor([[9, 0, 1], [1, 3, 0]])
    found = personal_summary(hits, seen, torch.tensor([10, 3, 1]), counts)
    assert found["recall"]["mean"] == pytest.approx((1.0 + (0.5 + 0.75) / 2) / 2)
    assert found["recall"]["worst_tenth"] == pytest.approx(0.625)
    assert found["weighted"]["mean"] == pytest.approx((1.0 + (0.5 + 3 * 0.75) / 4) / 2)
    assert found["per_class"] == [
        0.75,
        0.75,
        None,
    ]  # the first of both clients, the second of one alone, the third of nobody
    assert found["groups"] == {"head": 0.75, "middle": 0.75}
    assert found["hits"] == [[4, 1, 0], [2, 3, 0]] and found["seen"] == [4, 4, 0]
