"""What the fields of a record must be when it is read from a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from functools import cache
from typing import Any

from fedloom.core import json_checks as must_be
from fedloom.core.identity import IDENTITY_CHECK
from fedloom.core.json_checks import Check
from fedloom.metrics.score import SCORES

_COUNT, _LOSS = must_be.integer(0), must_be.number()
_REASONS = must_be.mapping_of(must_be.text(), r"\d{1,18}")  # by client
_SHARE = must_be.number(0, 1 + 1e-9)  # a mean of ones may come out just above 1 by rounding
_SPREAD = must_be.fields(dict.fromkeys(("mean", "std", "worst_tenth"), _SHARE))
_VALUE = must_be.optional(must_be.number())
_METRICS = must_be.mapping_of(_VALUE)
_OF_ANY_TASK = {
    "unscored": _REASONS,
    "metrics": must_be.mapping_of(
        must_be.fields(dict.fromkeys(("mean", "std", "worst_tenth"), must_be.number()))
    ),
    "by_client": must_be.mapping_of(must_be.list_of(_VALUE)),
}
_OF_CLASSES = must_be.fields(
    {"label_weighted_accuracy": _SPREAD, "mean_class_recall": _SPREAD},
    {
        "class_recall": must_be.list_of(must_be.optional(_SHARE)),
        "group_recall": must_be.mapping_of(_SHARE),
        "correct": must_be.list_of(must_be.list_of(_COUNT)),
        "test_samples": must_be.list_of(_COUNT),
        "own_test_samples": must_be.list_of(must_be.list_of(_COUNT)),
        **_OF_ANY_TASK,
    },
)
_OF_OTHER_TASKS = must_be.fields({}, _OF_ANY_TASK)


def _scores(value: Any, path: str) -> str | None:
    """Scores of clients: all of classification, or only what other tasks have."""
    is_other = isinstance(value, Mapping) and value.keys() <= _OF_ANY_TASK.keys()
    return (_OF_OTHER_TASKS if is_other else _OF_CLASSES)(value, path)


_FIELDS: dict[str, Check] = {
    "round": must_be.integer(1),
    "participants": must_be.list_of(_COUNT),
    "train_loss": must_be.optional(_LOSS),
    "steps": _COUNT,
    "bytes_up": _COUNT,
    "bytes_down": _COUNT,
    "seconds": must_be.number(0),
    "accuracy": must_be.number(high=1 + 1e-9),  # R2 may be below 0
    "test_loss": must_be.optional(_LOSS),
    "evaluation_seconds": must_be.number(0),
    "global_model": _scores,
    "personal_models": _scores,
    "method": must_be.text(),
    "rounds": must_be.integer(0),
    "weights_sha256": must_be.text(),
    "seed": _COUNT,
    "model": must_be.text(),
    "data": must_be.text(),
    "clients": _COUNT,
    "personalised": must_be.boolean(),
    "rounds_to_target": must_be.integer(1),
    "identity": IDENTITY_CHECK,
    "metrics": _METRICS,
    "task": must_be.one_of(SCORES),
}
_OWN_FIELDS: dict[str, dict[str, Check]] = {  # where two records have a field of the same name
    "RoundRecord": {"rejected": _REASONS, "skipped": must_be.text()},
    "RunResult": {"rejected": _COUNT, "skipped": _COUNT},
}


@cache
def record_check(cls: Any) -> Check:
    """The check of a record; fields with a default may be missing or null."""
    checks = {**_FIELDS, **_OWN_FIELDS[cls.__name__]}
    own = {f.name: checks.get(f.name, must_be.anything()) for f in fields(cls)}
    required = {f.name: own[f.name] for f in fields(cls) if is_required(f)}
    others = {n: must_be.optional(check) for n, check in own.items() if n not in required}
    return must_be.fields(required, others)


def is_required(field: Field[Any]) -> bool:
    """Whether every record has this field."""
    return field.default is MISSING and field.default_factory is MISSING
