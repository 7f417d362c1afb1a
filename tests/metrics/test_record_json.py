"""Records survive JSON with every field; other formats and damaged records are rejected."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedloom.core.errors import RunError
from fedloom.core.identity import RunIdentity
from fedloom.metrics.client_scores import ClientScores, Spread
from fedloom.metrics.record_json import FORMAT
from fedloom.metrics.records import RoundRecord, RunResult
from metrics.example_records import IDENTITY, MADE_WITH, RESULT, ROUND, SCORES

score = st.floats(0, 1)
count = st.integers(0, 2**40)
seconds = st.floats(0, 1e6)
loss = st.floats(0, 1e6)
name = st.text(min_size=1, max_size=12)
spreads = st.builds(Spread, score, score, score)
value = st.floats(-1e6, 1e6)
metrics = st.dictionaries(name, st.none() | value, max_size=2)
of_any_task = {
    "unscored": st.dictionaries(count, name, max_size=2),
    "metrics": st.dictionaries(name, st.builds(Spread, value, value, value), max_size=2),
    "by_client": st.dictionaries(
        name, st.lists(st.none() | value, min_size=1, max_size=3).map(tuple), max_size=2
    ),
}
client_scores = st.builds(ClientScores, **of_any_task) | st.builds(
    ClientScores,
    label_weighted_accuracy=spreads,
    mean_class_recall=spreads,
    class_recall=st.lists(st.none() | score, max_size=4).map(tuple),
    group_recall=st.dictionaries(st.sampled_from(["head", "middle", "tail"]), score),
    correct=st.lists(st.lists(count, min_size=1, max_size=3).map(tuple), max_size=3).map(tuple),
    test_samples=st.lists(count, max_size=3).map(tuple),
    **of_any_task,
)
rounds = st.builds(
    RoundRecord,
    round=st.integers(1, 10**6),
    participants=st.lists(st.integers(0, 10**6), max_size=4).map(tuple),
    rejected=st.dictionaries(st.integers(0, 10**6), st.text(max_size=20), max_size=3),
    train_loss=st.none() | loss,
    steps=count,
    bytes_up=count,
    bytes_down=count,
    seconds=seconds,
    accuracy=st.none() | score | st.floats(-1e6, 1),
    test_loss=st.none() | loss,
    evaluation_seconds=st.none() | seconds,
    global_model=st.none() | client_scores,
    personal_models=st.none() | client_scores,
    skipped=st.none() | name,
    metrics=metrics,
)
results = st.builds(
    RunResult,
    method=name,
    rounds=st.integers(1, 10**6),
    accuracy=score,
    test_loss=loss,
    seconds=seconds,
    weights_sha256=name,
    seed=count,
    model=name,
    data=name,
    clients=count,
    rejected=count,
    bytes_up=count,
    bytes_down=count,
    personalised=st.booleans(),
    global_model=client_scores,
    rounds_to_target=st.none() | st.integers(1, 10**6),
    personal_models=st.none() | client_scores,
    identity=st.sampled_from([None, RunIdentity(MADE_WITH), IDENTITY]),
    metrics=metrics,
    task=st.sampled_from([None, "multilabel", "regression", "next-token"]),
)

every_record = pytest.mark.parametrize("record", [ROUND, RESULT], ids=["round", "result"])


def through_json(record: Any) -> Any:
    """A record as another process reads it."""
    return type(record).from_json(json.loads(json.dumps(record.to_json())))


@given(rounds)
def test_a_round_survives_json(record: RoundRecord) -> None:
    assert through_json(record) == record


@given(results)
def test_a_result_survives_json(record: RunResult) -> None:
    assert through_json(record) == record


@every_record
def test_every_field_is_written_by_its_own_name(record: Any) -> None:
    """The example records have a value in every field, so none can be forgotten here."""
    written = record.to_json()
    assert written.keys() == {"format", *(f.name for f in fields(record))}
    assert written["format"] == FORMAT
    for model in ("global_model", "personal_models"):
        assert written[model] == {
            "label_weighted_accuracy": {"mean": 0.5, "std": 0.1, "worst_tenth": 0.25},
            "mean_class_recall": {"mean": 0.75, "std": 0.2, "worst_tenth": 0.125},
            "class_recall": [1.0, None],
            "group_recall": {"head": 0.5},
            "correct": [[3, 0], [1, 2], []],
            "test_samples": [4, 4],
            "unscored": {"2": "it failed"},
            "metrics": {"auroc": {"mean": 0.875, "std": 0.25, "worst_tenth": 0.5}},
            "by_client": {"auroc": [0.75, None]},
        }
    assert written["metrics"] == {"auroc": 0.5, "mine": None}
    assert through_json(record) == record


def test_what_was_not_evaluated_is_left_out() -> None:
    plain = RoundRecord(1, (), {}, 0.5, 12, 100, 200, 1.5)
    assert plain.to_json() == {
        "format": FORMAT,
        "round": 1,
        "participants": [],
        "rejected": {},
        "train_loss": 0.5,
        "steps": 12,
        "bytes_up": 100,
        "bytes_down": 200,
        "seconds": 1.5,
    }
    assert through_json(plain) == plain


PLACES = {RoundRecord: "a line of metrics.jsonl", RunResult: "result.json"}


@every_record
@pytest.mark.parametrize("version", [FORMAT - 1, FORMAT + 1, None, str(FORMAT)])
def test_another_format_is_rejected(record: Any, version: object) -> None:
    """Format and place are named, and what to do. The content is not looked at."""
    with pytest.raises(RunError) as error:
        type(record).from_json({"format": version})
    message = str(error.value)
    assert message.startswith(f"{PLACES[type(record)]} has record format {version},")
    assert f"reads format {FORMAT}" in message and "use the version that wrote it" in message


@every_record
def test_a_record_without_a_format_is_rejected(record: Any) -> None:
    facts = record.to_json()
    del facts["format"]
    with pytest.raises(RunError, match="has record format none"):
        type(record).from_json(facts)


OPTIONAL = {
    "accuracy",
    "test_loss",
    "evaluation_seconds",
    "global_model",
    "personal_models",
    "identity",
    "rounds_to_target",
    "skipped",
    "metrics",
    "task",
}


@pytest.mark.parametrize(
    ("record", "field"),
    [
        *((ROUND, f.name) for f in fields(ROUND) if f.name not in OPTIONAL),
        *((RESULT, f.name) for f in fields(RESULT) if f.name not in OPTIONAL),
        (RESULT, "accuracy"),
        (RESULT, "global_model"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_missing_field_is_named(record: Any, field: str) -> None:
    facts = record.to_json()
    del facts[field]
    with pytest.raises(RunError, match=f"is damaged: field '{field}' is missing or unknown"):
        type(record).from_json(facts)


@every_record
@pytest.mark.parametrize("field", ["refused", "loss", "own_models"])
def test_an_unknown_field_is_named(record: Any, field: str) -> None:
    facts = {**record.to_json(), field: 1}
    with pytest.raises(RunError, match=f"is damaged: field '{field}' is missing or unknown"):
        type(record).from_json(facts)


@pytest.mark.parametrize(
    "scores",
    [
        {"mean_class_recall": SCORES.mean_class_recall.__dict__},
        {**ROUND.to_json()["global_model"], "weighted": {}},
        {**ROUND.to_json()["global_model"], "mean_class_recall": {"mean": 0.5}},
        {**ROUND.to_json()["global_model"], "mean_class_recall": 0.5},
        [],
    ],
    ids=["missing", "unknown", "missing in a spread", "number", "list"],
)
@every_record
def test_damaged_scores_are_rejected(record: Any, scores: object) -> None:
    with pytest.raises(RunError, match="is damaged: field 'global_model"):
        type(record).from_json({**record.to_json(), "global_model": scores})


WRONG_VALUES = [
    (ROUND, "participants", 5),
    (ROUND, "participants", [1, "2"]),
    (ROUND, "participants", [1, -2]),
    (ROUND, "rejected", ["2"]),
    (ROUND, "rejected", {"two": "no reply"}),
    (ROUND, "rejected", {"2": 3}),
    (ROUND, "round", 0),
    (ROUND, "round", "3"),
    (ROUND, "round", True),
    (ROUND, "round", 10**400),
    (ROUND, "train_loss", "0.5"),
    (ROUND, "train_loss", float("nan")),
    (ROUND, "accuracy", 1.5),
    (ROUND, "accuracy", True),
    (ROUND, "steps", 1.5),
    (ROUND, "seconds", None),
    (ROUND, "global_model", {**ROUND.to_json()["global_model"], "class_recall": [[]]}),
    (RESULT, "accuracy", float("inf")),
    (RESULT, "accuracy", None),
    (RESULT, "rejected", {"2": "no reply"}),
    (RESULT, "personalised", 1),
    (RESULT, "method", None),
    (RESULT, "rounds_to_target", "2"),
    (RESULT, "task", "guessing"),
    (RESULT, "metrics", {"auroc": "0.5"}),
    (ROUND, "metrics", [0.5]),
    (ROUND, "global_model", {"metrics": {"mae": {"mean": 1.0}}}),
    (ROUND, "global_model", {"by_client": {"mae": 1.0}}),
]


@pytest.mark.parametrize(("record", "field", "value"), WRONG_VALUES)
def test_a_value_of_another_type_is_rejected_by_name(
    record: Any, field: str, value: object
) -> None:
    """Place and field are named."""
    with pytest.raises(RunError, match=f"run/file, line 7, is damaged: field '{field}") as error:
        type(record).from_json({**record.to_json(), field: value}, "run/file, line 7,")
    assert len(str(error.value)) < 300


def test_a_loss_that_is_not_finite_is_written_as_null() -> None:
    """NaN is not JSON: other programs could not read the line."""
    diverged = replace(ROUND, train_loss=float("nan"), test_loss=float("inf"))
    line = json.dumps(diverged.to_json(), allow_nan=False)
    back = RoundRecord.from_json(json.loads(line))
    assert (back.train_loss, back.test_loss) == (None, None)
    result = json.loads(json.dumps(replace(RESULT, test_loss=float("nan")).to_json()))
    assert RunResult.from_json(result).test_loss is None


def test_a_number_that_json_does_not_have_is_null() -> None:
    record = replace(ROUND, train_loss=math.nan, test_loss=math.inf)
    text = json.dumps(record.to_json(), allow_nan=False)
    assert '"train_loss": null' in text and '"test_loss": null' in text
    assert through_json(record) == replace(ROUND, train_loss=None, test_loss=None)
