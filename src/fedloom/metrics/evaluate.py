"""Accuracy, recall by class and by group of classes, and scores as each client meets them.

A client is scored in two ways: accuracy weighted by the labels that the client has, and mean recall
over the classes that it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fedloom.core.evaluate import ClassCounts


def class_groups(counts: Tensor) -> dict[str, list[int]]:
    """Classes by how often they are trained on: the most frequent third, the middle, the rarest; empty if all are alike.

    >>> class_groups(torch.tensor([5, 50, 1]))
    {'head': [1], 'middle': [0], 'tail': [2]}
    """
    if counts.max() == counts.min():
        return {}
    ranked = torch.argsort(counts, descending=True, stable=True)
    parts = torch.tensor_split(ranked, 3)
    return {
        name: sorted(part.tolist())
        for name, part in zip(("head", "middle", "tail"), parts, strict=True)
    }


def recall_by_group(result: ClassCounts, groups: Mapping[str, list[int]]) -> dict[str, float]:
    """Mean recall in each group of classes that the test data have."""
    kept = {g: [c for c in members if result.seen[c] > 0] for g, members in groups.items()}
    return {g: float(result.recall[members].mean()) for g, members in kept.items() if members}


def client_scores(recall: Tensor, seen: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """For each client (a row of class counts): label-weighted accuracy, and mean recall over the classes it has.

    recall may be one row for all clients or a row each; a class without test samples counts for nobody.
    """
    weights = counts.double() * (seen > 0)
    present = (weights > 0).double()
    weighted = (weights * recall).sum(1) / weights.sum(1).clamp(min=1e-12)
    return weighted, (present * recall).sum(1) / present.sum(1).clamp(min=1)


def spread(scores: Tensor) -> dict[str, float]:
    """Mean, standard deviation and the mean of the worst tenth over clients."""
    worst = torch.sort(scores).values[: max(1, len(scores) // 10)]
    return {
        "mean": float(scores.mean()),
        "std": float(scores.std(unbiased=False)),
        "worst_tenth": float(worst.mean()),
    }


def summary(result: ClassCounts, trained: Tensor, counts: Tensor) -> dict[str, Any]:
    """One model's figures for a metrics line. trained: training samples by class; counts: clients by classes."""
    weighted, recall = client_scores(result.recall, result.seen, counts)
    return {
        "accuracy": result.accuracy,
        "loss": result.loss,
        "per_class": [round(float(r), 6) for r in result.recall],
        "groups": recall_by_group(result, class_groups(trained)),
        "clients": {"weighted": spread(weighted), "recall": spread(recall)},
    }


def personal_summary(hits: Tensor, seen: Tensor, trained: Tensor, counts: Tensor) -> dict[str, Any]:
    """The figures of the clients' own models, a row of hits each; each is asked for the classes that its client has.

    per_class: mean recall over the clients that have the class; None where none has it, or no test sample is of it.
    hits: by client and class, out of `seen` test samples of the class.
    """
    holds = counts > 0
    weighted, recall = client_scores(hits / seen.clamp(min=1), seen, counts)
    met = ClassCounts((hits * holds).sum(0), seen * holds.sum(0), loss=0.0)
    return {
        "weighted": spread(weighted),
        "recall": spread(recall),
        "per_class": [
            round(float(r), 6) if n else None for r, n in zip(met.recall, met.seen, strict=True)
        ],
        "groups": recall_by_group(met, class_groups(trained)),
        "hits": hits.long().tolist(),
        "seen": seen.long().tolist(),
    }
