"""Scores of models on the clients' data, as records hold them. Does not import torch.

"Recall" of a class is the share of its test samples that are classified correctly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Spread:
    """Scores of all clients in three numbers; worst_tenth is the mean of the worst tenth."""

    mean: float
    std: float
    worst_tenth: float


@dataclass(frozen=True)
class ClientScores:
    """How models do on the label distributions of the clients.

    label_weighted_accuracy  per client: accuracy weighted by how often the client has each class
    mean_class_recall        per client: mean recall over the classes that the client has
    class_recall             recall of each class; of personal models the mean over the clients that
                             have the class, None where no client has it
    group_recall             recall of the most frequent third of the classes (head), the middle and
                             the tail; empty if all classes are equally frequent
    correct, test_samples    personal models only: correct predictions by client and class, out of
                             this many test samples of each class
    own_test_samples         the same by client, if each is scored on test samples of its own
    unscored                 clients that could not be scored, or whose own test samples are missing
                             in the global model's scores, with the reason
    metrics                  each metric over the clients, where every client has a model or test
                             samples of its own; a client in which it is not defined does not count
    by_client                the same for every client, None where it is not defined

    Scores by class exist for classification only, and are None or empty otherwise.
    """

    label_weighted_accuracy: Spread | None = None
    mean_class_recall: Spread | None = None
    class_recall: tuple[float | None, ...] = ()
    group_recall: Mapping[str, float] = field(default_factory=dict)
    correct: tuple[tuple[int, ...], ...] = ()
    test_samples: tuple[int, ...] = ()
    unscored: Mapping[int, str] = field(default_factory=dict)
    own_test_samples: tuple[tuple[int, ...], ...] = ()
    metrics: Mapping[str, Spread] = field(default_factory=dict)
    by_client: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)

    def spread_of(self, score: str) -> Spread | None:
        """A score of classes or a metric over the clients; None if it is not known."""
        of_classes = {
            "label_weighted_accuracy": self.label_weighted_accuracy,
            "mean_class_recall": self.mean_class_recall,
        }
        return of_classes.get(score) or self.metrics.get(score)

    def tested(self, client: int) -> tuple[int, ...]:
        """The test samples of each class on which a client's own model is scored."""
        return self.own_test_samples[client] if self.own_test_samples else self.test_samples

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> ClientScores:
        """The scores that a record holds, which has been checked."""
        return cls(
            _spread(facts.get("label_weighted_accuracy")),
            _spread(facts.get("mean_class_recall")),
            tuple(facts.get("class_recall", ())),
            dict(facts.get("group_recall", {})),
            tuple(tuple(row) for row in facts.get("correct", ())),
            tuple(facts.get("test_samples", ())),
            {int(client): why for client, why in facts.get("unscored", {}).items()},
            tuple(tuple(row) for row in facts.get("own_test_samples", ())),
            {name: Spread(**spread) for name, spread in facts.get("metrics", {}).items()},
            {name: tuple(values) for name, values in facts.get("by_client", {}).items()},
        )

    def spreads(self) -> ClientScores:
        """The spreads alone, for a line of the metrics."""
        of_classes = self.label_weighted_accuracy, self.mean_class_recall
        return ClientScores(*of_classes, metrics=self.metrics)


def _spread(facts: Mapping[str, float] | None) -> Spread | None:
    return None if facts is None else Spread(**facts)


EMPTY_SPREAD = Spread(0.0, 0.0, 0.0)
EMPTY_SCORES = ClientScores(
    EMPTY_SPREAD, EMPTY_SPREAD, group_recall=dict.fromkeys(("head", "middle", "tail"), 0.0)
)
