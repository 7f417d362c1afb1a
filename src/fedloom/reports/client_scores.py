"""Recall by class of the models that clients end with: over all clients, or of one client.

A method that personalises is judged by the clients' own models, any other by the global model, so
both kinds can be compared, and FedAvg stands for "no fine-tuning".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch

from fedloom.core.errors import UserError
from fedloom.data.statistics import class_counts
from fedloom.experiment.build import load_data, named_data, partition_rows
from fedloom.experiment.identity import check_same_data, used_data
from fedloom.experiment.stored_run import StoredRun
from fedloom.methods.registry import build as build_method
from fedloom.metrics.client_scores import EMPTY_SCORES, ClientScores
from fedloom.metrics.curve import mean_of_all
from fedloom.metrics.evaluate import score_clients
from fedloom.settings.config import Config

REMEDY = "put the earlier data back, or leave out --client"


def score_template(config: Config) -> ClientScores | None:
    """Placeholder scores, to check measures before a run; None if clients will not be scored."""
    scored = config.evaluate.personal or not build_method(config.method_specs).personal
    return EMPTY_SCORES if scored else None


def final_scores(run: StoredRun) -> ClientScores | None:
    """Of the models that the clients end with; None before the end, or if they were not scored."""
    return None if run.result is None else run.result.client_scores


def is_personalised(run: StoredRun) -> bool:
    """Whether the clients of a finished run have models of their own."""
    return run.result is not None and run.result.personalised


class ClassRecalls(NamedTuple):
    """Recall by class of the rows of a comparison, the names of the classes, and a title."""

    recalls: dict[str, list[float | None]]
    classes: list[str]
    title: str


def by_class(
    scores: Mapping[str, Sequence[ClientScores]],
    runs: Mapping[str, Sequence[StoredRun]],
    client: int | None = None,
) -> ClassRecalls | None:
    """Recall by class of every row, the mean over its seeds; None if there is nothing to compare.

    client: only the classes of this client, in the first run of every row.
    """
    if client is not None:
        return _of_client(scores, {name: group[0] for name, group in runs.items()}, client)
    sizes = {len(s.class_recall) for seeds in scores.values() for s in seeds}
    if len(scores) < 2 or not all(scores.values()) or len(sizes) > 1 or sizes == {0}:
        return None  # a task without classes has recalls of none
    recalls = {name: mean_class_recall(seeds) for name, seeds in scores.items()}
    classes = class_names(next((group[0] for group in runs.values()), None), max(sizes))
    return ClassRecalls(recalls, classes, "Recall by class, over the clients that have it")


def class_names(run: StoredRun | None, size: int) -> list[str]:
    """The names of the classes; their numbers if the data of the run are not here."""
    try:
        names = () if run is None else client_data(run).classes
    except UserError:
        names = ()
    return list(names) if len(names) == size else [str(number) for number in range(size)]


def mean_class_recall(seeds: Sequence[ClientScores]) -> list[float | None]:
    """By class, the mean over seeds; None where a seed has no value."""
    return [mean_of_all(each) for each in zip(*(s.class_recall for s in seeds), strict=True)]


def _of_client(
    scores: Mapping[str, Sequence[ClientScores]], runs: Mapping[str, StoredRun], client: int
) -> ClassRecalls:
    held_by = {name: client_data(run) for name, run in runs.items()}
    counts = {name: data.counts for name, data in held_by.items()}
    names = next(iter(held_by.values())).classes
    first, last = next(iter(counts.values())), min(map(len, counts.values())) - 1
    if not 0 <= client <= last:
        raise UserError(
            f"--client {client} is not one of the {last + 1} clients; "
            f"choose a number from 0 to {last}"
        )
    for name, other in counts.items():
        if not scores[name]:
            raise UserError(
                f"'{runs[name].name}' has no scores of client {client}; "
                "finish it with evaluate.personal=true"
            )
        if not np.array_equal(other[client], first[client]):
            raise UserError(
                f"client {client} holds different data in '{runs[name].name}'; "
                "compare runs of the same data, partition and seed"
            )
    held = np.flatnonzero(first[client]).tolist()
    recalls = {name: [_recall(s[0], client)[c] for c in held] for name, s in scores.items()}
    classes = [f"{names[c]}\n({first[client, c]})" for c in held]
    return ClassRecalls(recalls, classes, f"Recall by class of client {client} (training samples)")


def _recall(scores: ClientScores, client: int) -> list[float | None]:
    """Recall by class of a client's own model; of the global model where no other was scored."""
    if not scores.correct:
        return list(scores.class_recall)
    if client in scores.unscored:
        raise UserError(f"client {client} has no score ({scores.unscored[client]}); choose another")
    pairs = zip(scores.correct[client], scores.tested(client), strict=True)
    return [hits / tested if tested else None for hits, tested in pairs]


class ClientData(NamedTuple):
    """Training samples, clients by classes; the names of the classes; test samples by class.

    The test samples are the same for all clients, or a row for each.
    """

    counts: np.ndarray
    classes: tuple[str, ...]
    tested: np.ndarray


def client_data(run: StoredRun, remedy: str = REMEDY) -> ClientData:
    """What the clients of a run hold; raises if its data are others now, or have no classes."""
    if run.config.task != "classification":
        raise UserError(f"there are no samples by class in the task {run.config.task}")
    whole = run.dataset or named_data(run.config.data.name)
    dataset = load_data(run.config, whole)
    rows = partition_rows(run.config, dataset)
    check_same_data(run.name, run.identity, used_data(whole, rows), remedy)
    size = len(dataset.classes)
    counts = class_counts(dataset.train.labels, rows, size)
    return ClientData(counts, dataset.classes, np.bincount(dataset.test.labels, minlength=size))


def metric_by_client(run: StoredRun, name: str) -> list[float | None]:
    """A metric of every client, of the model that it ends with; empty if the run has none."""
    scores = final_scores(run)
    return [] if scores is None else list(scores.by_client.get(name, ()))


def scores_by_client(run: StoredRun, data: ClientData) -> list[float | None]:
    """Mean recall over the classes that each client has, of the model that it ends with.

    None for a client without a score; empty if the run has none that fit its data.
    """
    scores, size = final_scores(run), len(data.classes)
    if scores is None or len(scores.class_recall) != size:
        return []
    if not scores.correct:
        recall = np.array([0.0 if r is None else r for r in scores.class_recall])
        return _client_recalls(np.broadcast_to(recall, data.counts.shape), data)
    if len(scores.correct) != len(data.counts) or len(scores.test_samples) != size:
        return []
    hits = [row if len(row) == size else (0,) * size for row in scores.correct]
    if scores.own_test_samples:
        data = data._replace(tested=np.array(scores.own_test_samples))
    recalls = _client_recalls(np.array(hits) / np.maximum(data.tested, 1), data)
    return [None if client in scores.unscored else r for client, r in enumerate(recalls)]


def _client_recalls(recall: np.ndarray, data: ClientData) -> list[float | None]:
    seen, counts = torch.from_numpy(data.tested), torch.from_numpy(data.counts)
    _, means = score_clients(torch.from_numpy(recall.copy()), seen, counts)
    return list(means.tolist())
