"""Accuracy, recall by class and by group of classes, and scores as each client meets them.

A client is scored in two ways: accuracy weighted by the labels that the client has, and mean recall
over the classes that it has. Which these are is read off its training samples, or off its own test
samples where it is scored on those.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor

from fedloom.core.evaluate import ClassCounts, Evaluation
from fedloom.metrics.client_scores import ClientScores, Spread
from fedloom.metrics.registry import Metric
from fedloom.metrics.score import SCORES

CLIENTS_AT_ONCE = 2**14  # whose tables are in memory; there may be millions


def class_groups(counts: Tensor) -> dict[str, list[int]]:
    """Classes by how frequent they are in training: head, middle and tail, a third each.

    Empty if all classes are equally frequent.

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


def score_clients(recall: Tensor, seen: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """For each client: label-weighted accuracy, and mean recall over the classes that it has.

    recall: by class, one row for all clients or a row each. seen: test samples by class; a class
    without any counts for no client. counts: training samples, clients by classes.
    """
    rows = len(counts)
    tables = [torch.split(t.expand(rows, -1), CLIENTS_AT_ONCE) for t in (recall, seen, counts)]
    # made beforehand: between the large intermediate results, the scores would leave gaps
    scores = torch.empty(2, rows, dtype=torch.float64)
    pieces = zip(*tables, torch.split(scores, CLIENTS_AT_ONCE, dim=1), strict=True)
    for *some, target in pieces:
        target[0], target[1] = _score_some(*some)
    return scores[0], scores[1]


def _score_some(recall: Tensor, seen: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    weights = counts.double() * (seen > 0)
    present = (weights > 0).double()
    weighted = (weights * recall).sum(1) / weights.sum(1).clamp(min=1e-12)
    return weighted, (present * recall).sum(1) / present.sum(1).clamp(min=1)


def task_score(task: str, evaluation: Evaluation) -> float:
    """The score of a task (metrics/score.py), of an evaluation whose metrics are computed."""
    counted = bool(len(evaluation.counts.seen))
    return evaluation.counts.accuracy if counted else evaluation.metrics[SCORES[task].metric]


def metric_values(metrics: Mapping[str, Metric], evaluation: Evaluation) -> dict[str, float | None]:
    """Each metric of a model on its test data; None where it is not defined or not finite."""
    values = {name: metric.value(evaluation) for name, metric in metrics.items()}
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def metric_scores(
    metrics: Mapping[str, Metric],
    values: Sequence[Mapping[str, float | None] | None],
    unscored: Mapping[int, str] = MappingProxyType({}),
) -> ClientScores:
    """Each metric over the clients and by client; nothing about classes.

    values: by client, the value of each metric; None for those in `unscored`.
    """
    by_client = {name: tuple(None if of is None else of[name] for of in values) for name in metrics}
    defined = {n: [v for v in each if v is not None] for n, each in by_client.items()}
    spreads = {
        name: spread(torch.tensor(each, dtype=torch.float64), metrics[name].lower_is_better)
        for name, each in defined.items()
        if each
    }
    return ClientScores(metrics=spreads, by_client=by_client, unscored=dict(unscored))


def spread(scores: Tensor, lower_is_better: bool = False) -> Spread:
    """Mean, standard deviation and the mean of the worst tenth over clients."""
    ordered = torch.from_numpy(np.sort(scores.numpy()))  # without the positions that torch makes
    worst = (ordered.flip(0) if lower_is_better else ordered)[: max(1, len(scores) // 10)]
    return Spread(float(scores.mean()), float(scores.std(unbiased=False)), float(worst.mean()))


def global_scores(result: ClassCounts, counts: Tensor) -> ClientScores:
    """The global model as the clients meet it. counts: training samples, clients by classes."""
    weighted, recall = score_clients(result.recall, result.seen, counts)
    return ClientScores(
        spread(weighted),
        spread(recall),
        class_recall=tuple(round(float(r), 6) for r in result.recall),
        group_recall=recall_by_group(result, class_groups(_by_class(counts))),
    )


def _by_class(counts: Tensor) -> Tensor:
    """The samples of all clients by class. A sum of the whole would make a copy of 64 bits each."""
    parts = [some.sum(0) for some in torch.split(counts, CLIENTS_AT_ONCE)]
    return torch.stack(parts).sum(0)


def global_scores_on_own(
    pieces: Sequence[ClassCounts | None], counts: Tensor, unscored: Mapping[int, str]
) -> ClientScores:
    """The global model on every client's own test samples.

    pieces: by client; None for those in `unscored`. counts: training samples, clients by classes.
    """
    nothing = torch.zeros(counts.shape[1], dtype=torch.float64)
    hits = torch.stack([nothing if p is None else p.hits for p in pieces])
    seen = torch.stack([nothing if p is None else p.seen for p in pieces])
    scores = personal_scores(hits, seen, counts, unscored)
    return replace(scores, correct=(), test_samples=(), own_test_samples=())


def personal_scores(
    hits: Tensor, seen: Tensor, counts: Tensor, unscored: Mapping[int, str] = MappingProxyType({})
) -> ClientScores:
    """The clients' own models, each judged on the classes that its client has.

    hits: correct predictions by client and class, out of `seen` test samples of each class, a row
    for all clients or a row each. counts: training samples, clients by classes. unscored: clients
    without a score, and why.
    """
    scored = torch.tensor([client not in unscored for client in range(len(hits))])
    own_hits = hits[scored]
    own_seen = seen[scored] if seen.dim() == 2 else seen
    labels = own_seen if seen.dim() == 2 else counts[scored]
    holds = labels > 0
    weighted, recall = score_clients(own_hits / own_seen.clamp(min=1), own_seen, labels)
    held = ClassCounts((own_hits * holds).sum(0), (own_seen * holds).sum(0), loss=0.0)
    by_class = zip(held.recall, held.seen, strict=True)
    rows = zip(hits.long().tolist(), scored.tolist(), strict=True)
    return ClientScores(
        spread(weighted),
        spread(recall),
        class_recall=tuple(round(float(r), 6) if n else None for r, n in by_class),
        group_recall=recall_by_group(held, class_groups(counts.sum(0))),
        correct=tuple(tuple(row) if has_score else () for row, has_score in rows),
        test_samples=tuple((seen.sum(0) if seen.dim() == 2 else seen).long().tolist()),
        unscored=dict(unscored),
        own_test_samples=tuple(map(tuple, seen.long().tolist())) if seen.dim() == 2 else (),
    )
