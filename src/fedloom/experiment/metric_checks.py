"""Checks user-defined metrics before round 0, on a few predictions of the new model."""

from __future__ import annotations

from collections.abc import Mapping

from fedloom.core.chain import Chain
from fedloom.core.errors import RunError, UserError
from fedloom.core.evaluate import evaluate_model
from fedloom.core.federation import Federation
from fedloom.metrics.registry import Metric, metrics_of


def check_user_metrics(federation: Federation, model: Chain, metrics: Mapping[str, Metric]) -> None:
    """Raise if a user-defined metric fails on a batch of test data, or does not return a number."""
    task, known = federation.task, metrics_of(federation.task.name).values()
    own = {n: m.function for n, m in metrics.items() if m not in known and m.function is not None}
    if not own or not len(federation.test):
        return
    found = evaluate_model(model, federation.test[:1], federation.classes, task, True)
    model.train()
    try:
        found.with_metrics(own)
    except RunError as error:
        raise UserError(
            f"{error}; fix the function, which gets (predictions, targets) and returns a number"
        ) from error
