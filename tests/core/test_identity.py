"""The identity of a run: JSON and back, damage, and what has changed in words."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fedloom.core.identity import IDENTITY_CHECK, DataIdentity, MadeWith, RunIdentity, UsedData

MADE_WITH = MadeWith("0.1", "ab" * 32, "2.9", "2.1", "3.12", "a fast one", {"MKL_CBWR": "AVX2"})
DATA = UsedData("tiny", DataIdentity(*(digit * 64 for digit in "12345"), 240, 80), "6" * 64)
IDENTITY = RunIdentity(MADE_WITH, DATA, {"own.py": "7" * 64}, ("after round 2, numpy changed",))


def test_an_identity_survives_json() -> None:
    for identity in (IDENTITY, RunIdentity(MADE_WITH)):
        facts = json.loads(json.dumps(identity.to_json()))
        assert IDENTITY_CHECK(facts, "") is None and RunIdentity.from_json(facts) == identity


def damaged(facts: Any) -> Iterator[Any]:
    """The facts, as JSON, with one entry left out, added, or of another type, at every depth."""
    facts = json.loads(json.dumps(facts))
    yield from (None, 3, [facts], "text")
    if not isinstance(facts, dict):
        return
    yield {**facts, "more": 1}
    for name, value in facts.items():
        yield {key: item for key, item in facts.items() if key != name}
        yield from ({**facts, name: other} for other in (-1, True, 1.5, {"a": 1}, [1]))
        if isinstance(value, dict):
            yield from ({**facts, name: other} for other in damaged(value))


def test_a_damaged_identity_is_described_and_never_a_traceback() -> None:
    rejected = 0
    for facts in damaged(IDENTITY.to_json()):
        if (problem := IDENTITY_CHECK(facts, "identity")) is None:
            # an optional entry was left out, or one more path was named
            assert RunIdentity.from_json(facts).made_with.fedloom == "0.1"
        else:
            assert problem.startswith("field 'identity")
            rejected += 1
    assert rejected > 100


def test_differences_of_data_in_words() -> None:
    assert DATA.differences(replace(DATA, name="renamed")) == []
    content = replace(DATA.content, train="9" * 64, train_samples=7, classes="9" * 64)
    words = DATA.differences(replace(DATA, content=content))
    assert words == ["the training samples", "the class names"]
    other = replace(DATA, partition="9" * 64)
    (moved,) = DATA.differences(other)
    assert "666666666666 and 999999999999" in moved
    assert DATA.differences(other, partition=False) == []


def test_a_resumed_run_remembers_what_has_changed() -> None:
    now = replace(
        IDENTITY,
        made_with=replace(MADE_WITH, torch="3.0", code_path={"ONEDNN_MAX_CPU_ISA": "SSE41"}),
        code={"own.py": "8" * 64, "new.py": "8" * 64},
        changes=(),
    )
    assert IDENTITY.continued(now, 5).changes == (
        "after round 2, numpy changed",
        "after round 5, 'own.py' was edited",
        "after round 5, torch 2.9 became 3.0",
        "after round 5, MKL_CBWR AVX2 became unset",
        "after round 5, ONEDNN_MAX_CPU_ISA unset became SSE41",
    )
    assert IDENTITY.continued(replace(IDENTITY, changes=()), 5) == IDENTITY
