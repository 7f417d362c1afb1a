"""Models on the test data: the global model after a round, and the clients' own models."""

from __future__ import annotations

from typing import Any

import torch

from fedloom.core.client import Broadcast, ClientTask, EvaluationTask
from fedloom.core.errors import RunError
from fedloom.core.evaluate import ClassCounts
from fedloom.core.server import Absent
from fedloom.core.state import ClientStore, ServerState
from fedloom.experiment.prepare import PreparedRun
from fedloom.metrics.evaluate import global_scores, global_scores_on_own, personal_scores
from fedloom.metrics.records import ClientScores

NO_TEST_SAMPLE = "it has no test sample"


def evaluate(prepared: PreparedRun, state: ServerState, store: ClientStore) -> dict[str, Any]:
    """The scores that the settings ask for after this round; personal models at the end belong to
    the result."""
    settings, last = prepared.config.evaluate, state.round == prepared.config.rounds
    scores: dict[str, Any] = {}
    if state.round % settings.every == 0 or last:
        pieces, absent = _count_on_test_data(prepared, state)
        counts = ClassCounts.total([piece for piece in pieces if piece is not None])
        scores["accuracy"], scores["test_loss"] = counts.accuracy, counts.loss
        scores["global_model"] = (
            global_scores(counts, prepared.counts)
            if prepared.simulation.federation.own_test is None
            else global_scores_on_own(pieces, prepared.counts, absent)
        )
    if settings.personal_every and state.round % settings.personal_every == 0 and not last:
        personal = score_personal_models(prepared, state, store)
        scores["personal_models"] = None if personal is None else personal.spreads()
    return scores


def _count_on_test_data(
    prepared: PreparedRun, state: ServerState
) -> tuple[list[ClassCounts | None], dict[int, str]]:
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
            if number not in absent and not piece.seen.any()
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
    unscored: dict[int, str] = {}
    # into one table at once: many small tensors kept alive would fragment the heap
    for client, counts in prepared.simulation.ask(broadcast, tasks):
        if isinstance(counts, Absent):
            unscored[client] = counts.reason
        elif not counts.seen.any():
            unscored[client] = NO_TEST_SAMPLE
        else:
            hits[client], seen[client] = counts.hits, counts.seen
    if len(unscored) == len(hits):
        raise RunError(f"no client's own model could be scored (client 0: {unscored[0]})")
    if prepared.simulation.federation.own_test is None:  # all have the same test samples
        seen = seen.amax(0)
    return personal_scores(hits, seen, prepared.counts, unscored)
