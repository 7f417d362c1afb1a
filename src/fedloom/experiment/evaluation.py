"""Models on the test data: the global model after a round, and the clients' own models."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from fedloom.core.errors import RunError
from fedloom.core.evaluate import Evaluation
from fedloom.core.params import nbytes
from fedloom.core.request import Broadcast, ClientTask, EvaluationTask
from fedloom.core.server import Absent
from fedloom.core.state import ClientStore, ServerState
from fedloom.engines.malloc import return_free_pages
from fedloom.experiment.prepare import PreparedRun
from fedloom.metrics.client_scores import ClientScores
from fedloom.metrics.evaluate import (
    global_scores,
    global_scores_on_own,
    metric_scores,
    metric_values,
    personal_scores,
    task_score,
)
from fedloom.metrics.score import SCORES

TRIMMED_MODEL_BYTES = 2**25  # with smaller models, a round leaves little
NO_TEST_SAMPLE = "it has no test sample"


def evaluate(prepared: PreparedRun, state: ServerState, store: ClientStore) -> dict[str, Any]:
    """The scores that the settings ask for after this round; personal models at the end belong to
    the result."""
    settings, last = prepared.config.evaluate, state.round == prepared.config.rounds
    scores: dict[str, Any] = {}
    if state.round % settings.every == 0 or last:
        if nbytes(state.params) >= TRIMMED_MODEL_BYTES:
            return_free_pages()
        scores |= _evaluate_global_model(prepared, state)
    if settings.personal_every and state.round % settings.personal_every == 0 and not last:
        personal = score_personal_models(prepared, state, store)
        scores["personal_models"] = None if personal is None else personal.spreads()
    return scores


def _evaluate_global_model(prepared: PreparedRun, state: ServerState) -> dict[str, Any]:
    federation, task = prepared.simulation.federation, prepared.config.task
    pieces, absent = _evaluate_pieces(prepared, state)
    whole = Evaluation.total([piece for piece in pieces if piece is not None])
    whole = whole.with_metrics(federation.metrics)
    score = task_score(task, whole)
    if not math.isfinite(score):
        raise RunError(
            f"{SCORES[task].name} of the model after round {state.round} is {score}: its "
            "predictions on the test data are too large or no numbers; lower train.lr, or set "
            "train.clip"
        )
    return {
        "accuracy": score,
        "test_loss": whole.counts.loss,
        "metrics": metric_values(prepared.metrics, whole),
        "global_model": _scores_of_clients(prepared, whole, pieces, absent),
    }


def _scores_of_clients(
    prepared: PreparedRun,
    whole: Evaluation,
    pieces: list[Evaluation | None],
    absent: dict[int, str],
) -> ClientScores:
    """The global model as the clients meet it; whole: on all test data."""
    federation = prepared.simulation.federation
    if federation.own_test is None:
        found = global_scores(whole.counts, prepared.counts) if _has_classes(prepared) else None
        return found or ClientScores()
    own = [None if p is None else p.with_metrics(federation.metrics) for p in pieces]
    values = [None if p is None else metric_values(prepared.metrics, p) for p in own]
    scores = metric_scores(prepared.metrics, values, absent)
    if not _has_classes(prepared):
        return scores
    counts = [None if p is None else p.counts for p in pieces]
    return _with_metrics(global_scores_on_own(counts, prepared.counts, absent), scores)


def _evaluate_pieces(
    prepared: PreparedRun, state: ServerState
) -> tuple[list[Evaluation | None], dict[int, str]]:
    """The global model on the test data, in pieces that run wherever the clients run.

    Also, where clients have test data of their own, those without a piece, with the reason.
    """
    broadcast = Broadcast("evaluate", state.round, state.params)
    simulation = prepared.simulation
    tasks = (EvaluationTask(piece) for piece in range(simulation.federation.test_pieces))
    pieces = sorted(simulation.ask(broadcast, tasks), key=lambda piece: piece[0])
    absent = {number: piece.reason for number, piece in pieces if isinstance(piece, Absent)}
    if simulation.federation.own_test is not None:
        absent |= {
            number: NO_TEST_SAMPLE
            for number, piece in pieces
            if number not in absent and not piece.units
        }
    if len(absent) == len(pieces):
        client, reason = next(iter(absent.items()))
        raise RunError(f"no client could evaluate the model (client {client}: {reason})")
    return [None if number in absent else piece for number, piece in pieces], absent


def score_personal_models(
    prepared: PreparedRun, state: ServerState, store: ClientStore
) -> ClientScores | None:
    """The clients' own models on the test data; None if the method makes none or nobody asked."""
    method = prepared.simulation.federation.method
    if not (method.personal and prepared.config.evaluate.personal):
        return None
    broadcast = Broadcast("score", state.round, state.params, state.shared)
    tasks = (ClientTask(c, store.recall(c)) for c in range(len(prepared.clients)))
    hits, seen = (torch.zeros_like(prepared.counts, dtype=torch.float64) for _ in range(2))
    values: list[Mapping[str, float | None] | None] = [None] * len(prepared.clients)
    unscored: dict[int, str] = {}
    # into one table at once: many small tensors kept alive would fragment the heap
    for client, answer in prepared.simulation.ask(broadcast, tasks):
        if isinstance(answer, Absent):
            unscored[client] = answer.reason
        elif not answer.units:
            unscored[client] = NO_TEST_SAMPLE
        else:
            values[client] = metric_values(prepared.metrics, answer)
            if _has_classes(prepared):
                hits[client], seen[client] = answer.counts.hits, answer.counts.seen
    if len(unscored) == len(values):
        raise RunError(f"no client's own model could be scored (client 0: {unscored[0]})")
    if prepared.simulation.federation.own_test is None:  # all have the same test samples
        seen = seen.amax(0)
    scores = metric_scores(prepared.metrics, values, unscored)
    if not _has_classes(prepared):
        return scores
    return _with_metrics(personal_scores(hits, seen, prepared.counts, unscored), scores)


def _has_classes(prepared: PreparedRun) -> bool:
    """Whether there are scores by class."""
    return prepared.config.task == "classification"


def _with_metrics(of_classes: ClientScores, scores: ClientScores) -> ClientScores:
    return replace(of_classes, metrics=scores.metrics, by_client=scores.by_client)
