"""Checks of values read from JSON: what they let pass, and how they name what is wrong."""

import pytest

from fedloom.core import json_checks as must_be
from fedloom.core.json_checks import Check

RIGHT = [
    (must_be.integer(), 0),
    (must_be.integer(), 2**63 - 1),
    (must_be.number(), -3),
    (must_be.number(0, 1), 1.0),
    (must_be.text(), ""),
    (must_be.boolean(), False),
    (must_be.checksum(), "0f" * 32),
    (must_be.anything(), object()),
    (must_be.optional(must_be.text()), None),
    (must_be.list_of(must_be.integer()), [1, 2]),
    (must_be.different_names(), ["a", "b"]),
    (must_be.mapping_of(must_be.integer(), r"\d+"), {"1": 1}),
    (must_be.fields({"a": must_be.text()}, {"b": must_be.text()}), {"a": ""}),
]

WRONG = [
    (must_be.integer(), True, "'x' is True, and must be a whole number of at least 0"),
    (must_be.integer(), 2.0, "is 2.0"),
    (must_be.integer(1), 0, "at least 1"),
    (must_be.integer(), 10**5000, "is a number of more than 64 bits"),
    (must_be.number(), 10**400, "is a number of more than 64 bits"),
    (must_be.number(), float("inf"), "is inf, and must be a finite number"),
    (must_be.number(), "1", "must be a finite number"),
    (must_be.number(0, 1), 1.5, "a finite number between 0 and 1"),
    (must_be.number(0), -1, "a finite number of at least 0"),
    (must_be.text(), None, "is null, and must be text"),
    (must_be.text(), {}, "is an object"),
    (must_be.boolean(), 1, "must be true or false"),
    (must_be.checksum(), "0F" * 32, "must be a sha256"),
    (must_be.checksum(), "0f" * 32 + "\n", "must be a sha256"),
    (must_be.list_of(must_be.text()), "ab", "must be a list"),
    (must_be.list_of(must_be.text()), ["a", 2], r"'x\[1\]' is 2"),
    (must_be.different_names(), ["a", "a"], "'x' has a name twice"),
    (must_be.mapping_of(must_be.integer()), [], "must be an object"),
    (must_be.mapping_of(must_be.integer()), {"a": None}, "'x.a' is null"),
    (must_be.mapping_of(must_be.integer(), r"\d+"), {"a": 1}, "unknown entry 'a'"),
    (must_be.fields({"a": must_be.text()}), {}, "'x.a' is missing or unknown"),
    (must_be.fields({}), {"b": 1}, "'x.b' is missing or unknown"),
    (must_be.fields({}), None, "is null, and must be an object"),
    (must_be.text(), ["long"] * 1000, "is a list"),
]


@pytest.mark.parametrize(("check", "value"), RIGHT)
def test_right(check: Check, value: object) -> None:
    assert check(value, "x") is None


@pytest.mark.parametrize(("check", "value", "message"), WRONG, ids=[w[2] for w in WRONG])
def test_wrong(check: Check, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        raise ValueError(check(value, "x"))


def test_a_long_value_is_cut() -> None:
    assert len(must_be.integer()("y" * 10_000, "x") or "") < 160
