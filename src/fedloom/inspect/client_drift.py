"""The part of an analysis about client drift: how the replayed clients differ from the server."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.evaluate import ClassCounts, count_correct
from fedloom.core.params import Params
from fedloom.diagnostics.drift import block_grams, cka_per_block, update_drifts
from fedloom.inspect.analysis_files import AnalysisResult
from fedloom.inspect.analysis_inputs import AnalysisInputs
from fedloom.inspect.replay import ReplayedClient


def client_drift(inputs: AnalysisInputs) -> AnalysisResult:
    """For each client: its update against the mean update, its accuracy, and its features' CKA.

    Clients for which there was no time have no accuracy and no CKA.
    """
    chain, clients = inputs.new_chain(), inputs.clients
    keep_going = inputs.budget.start_part("drift", len(clients))
    server_features, server_counts = _evaluate(inputs, chain, inputs.run.state.params)
    rows = _update_rows(inputs, clients)
    for row, client in zip(rows, clients, strict=True):
        if not keep_going():
            break
        features, counts = _evaluate(inputs, chain, client.model)
        row |= {**_scores(counts), "cka": cka_per_block(server_features, features)}
    return AnalysisResult({"server": _scores(server_counts), "clients": rows})


def _update_rows(inputs: AnalysisInputs, clients: list[ReplayedClient]) -> list[dict[str, Any]]:
    """A row per client: the norm of its update, and the distance and cosine to the mean update."""
    weights = inputs.surface.weights
    updates = [
        torch.cat([t.reshape(-1) for name, t in c.update.items() if name in weights])
        for c in clients
    ]
    return [
        {
            "client": c.client,
            "samples": c.samples,
            "update_norm": drift.length,
            "distance_to_mean": drift.distance,
            "cosine_to_mean": drift.cosine,
        }
        for c, drift in zip(clients, update_drifts(updates), strict=True)
    ]


def _evaluate(
    inputs: AnalysisInputs, chain: Chain, params: Params
) -> tuple[dict[str, Tensor], ClassCounts]:
    """Gram matrices of the features on the fixed samples, and correct predictions on test data."""
    chain.load_state_dict(params)
    federation = inputs.run.prepared.simulation.federation
    features = block_grams(chain, inputs.batches)
    return features, count_correct(chain, federation.test, federation.classes)


def _scores(counts: ClassCounts) -> dict[str, Any]:
    """Accuracy on the test data, and recall per class; None for a class without test samples."""
    per_class = zip(counts.recall.tolist(), counts.seen.tolist(), strict=True)
    class_recall = [round(recall, 6) if samples else None for recall, samples in per_class]
    return {"accuracy": counts.accuracy, "class_recall": class_recall}
