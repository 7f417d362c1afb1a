"""What trackers write about a run: names and numbers, the same for every tracker."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fedloom.metrics.client_scores import ClientScores, Spread
from fedloom.metrics.records import RoundRecord, RunResult
from fedloom.settings.config import Config

Value = bool | int | float | str


def run_name(config: Config) -> str:
    """A short name for a run, usable as the name of a folder: method and seed."""
    title = "".join(c if c.isalnum() or c in "-+=.," else "_" for c in config.title)
    return f"{title[:100].lstrip('.') or 'run'}-s{config.seed}"


def settings(config: Config) -> dict[str, Value]:
    """The settings with dotted names, such as train.lr; those that are not set are left out."""
    return dict(_flat("", config.model_dump(mode="json")))


def _flat(prefix: str, table: Mapping[str, Any]) -> list[tuple[str, Value]]:
    """The values of nested tables; a list becomes text.

    >>> _flat("", {"a": {"b": 1, "c": None}, "d": [1, 2]})
    [('a.b', 1), ('d', '[1, 2]')]
    """
    pairs: list[tuple[str, Value]] = []
    for key, value in table.items():
        if isinstance(value, Mapping):
            pairs += _flat(f"{prefix}{key}.", value)
        elif isinstance(value, bool | int | float | str):
            pairs.append((prefix + key, value))
        elif value is not None:
            pairs.append((prefix + key, json.dumps(value)))
    return pairs


def round_metrics(record: RoundRecord) -> dict[str, float]:
    """The numbers of a round; what was not measured in it is left out.

    accuracy: of other tasks than classification, their score (metrics/score.py). Metrics have their
    own names: of the global model auroc, over clients clients_auroc and personal_auroc, each with
    _worst_tenth.
    accuracy_worst_tenth: of the global model, mean over the tenth of the clients it serves worst.
    rejected: replies that were not used. skipped: 1 if the whole round was not used.
    """
    numbers = {
        "accuracy": record.accuracy,
        "test_loss": record.test_loss,
        "train_loss": record.train_loss,
        "accuracy_worst_tenth": _worst_tenth(record.global_model),
        **record.metrics,
        **_over_clients(record.global_model, "clients"),
        **_personal(record.personal_models),
        "bytes_up": record.bytes_up,
        "bytes_down": record.bytes_down,
        "rejected": len(record.rejected),
        "skipped": int(record.skipped is not None),
        "evaluation_seconds": record.evaluation_seconds,
        "seconds": record.seconds,
    }
    return {name: float(number) for name, number in numbers.items() if number is not None}


def final_metrics(result: RunResult) -> dict[str, float]:
    """The numbers that only a finished run has."""
    numbers = {**_personal(result.personal_models), "rounds_to_target": result.rounds_to_target}
    return {name: float(number) for name, number in numbers.items() if number is not None}


def client_accuracy(scores: ClientScores | None) -> dict[int, float]:
    """Accuracy of each client's own model on its test samples; empty if there are none."""
    if scores is None or not sum(scores.test_samples):
        return {}
    return {
        client: sum(correct) / sum(scores.tested(client))
        for client, correct in enumerate(scores.correct)
        if client not in scores.unscored
    }


def client_metrics(scores: ClientScores | None) -> dict[str, dict[int, float]]:
    """Each metric of every client in which it is defined."""
    by_client = {} if scores is None else scores.by_client
    return {
        name: {client: value for client, value in enumerate(values) if value is not None}
        for name, values in by_client.items()
    }


def _worst_tenth(scores: ClientScores | None) -> float | None:
    spread = None if scores is None else scores.label_weighted_accuracy
    return None if spread is None else spread.worst_tenth


def _personal(scores: ClientScores | None) -> dict[str, float]:
    spread = None if scores is None else scores.label_weighted_accuracy
    accuracy = {"accuracy": spread} if spread is not None else {}
    return _named("personal", accuracy) | _over_clients(scores, "personal")


def _over_clients(scores: ClientScores | None, kind: str) -> dict[str, float]:
    """Each metric over the clients. kind: whose models they are, the beginning of the names."""
    return {} if scores is None else _named(kind, scores.metrics)


def _named(kind: str, spreads: Mapping[str, Spread]) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for name, spread in spreads.items():
        numbers[f"{kind}_{name}"] = spread.mean
        numbers[f"{kind}_{name}_worst_tenth"] = spread.worst_tenth
    return numbers
