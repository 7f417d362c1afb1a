"""Values that no setting takes are rejected with a short message, wherever they come from."""

import datetime
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedloom.core.errors import UserError
from fedloom.settings.config import DEFAULTS, load, load_file
from fedloom.settings.overrides import assignment, overlay


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"data": {"per_class": 99999999999999999999}}, "data.per_class: 99999999999999999999 is"),
        ({"seed": 2**63}, "seed: 9223372036854775808 is too large"),
        ({"seed": -(10**5000)}, "seed: an integer of about 5,001 digits is too large"),
        ({"rounds": 10**9 + 1}, "rounds=1000000001 should be less than or equal to 1000000000"),
        ({"train": {"lr": float("nan")}}, "train.lr: nan is not a finite number"),
        ({"method": {"name": "fedprox", "fedprox": {"mu": 2**70}}}, "method.fedprox.mu: 11805916"),
        ({"rounds": datetime.date(2026, 1, 2)}, "is a date; a setting is text, a number"),
        ({"data": {"name": "a\0b"}}, r"data.name: 'a\x00b' contains a zero byte"),
        ({"data": {"name": "\udcff"}}, r"data.name: '\udcff' is not valid Unicode"),
        ({"data": {"name": "x" * 5000}}, "is 5,000 characters long, and at most 4,096"),
        ({"x" * 5000: 1}, "is 5,000 characters long"),
        ({"engine": "y" * 3000}, "yyy ... yyy"),
        ({"train": nested(3000)}, "is nested more than 8 tables deep"),
        ({"data": {"mean": [None]}}, "none has no place in a list"),
        ({"data": {"mean": [True], "std": [0.5]}}, "data.mean.0=True should be a valid number"),
        ({"data": {"mean": ["0.5"], "std": [0.5]}}, "data.mean.0='0.5' should be a valid number"),
        ({1: 2}, "the name 1 is not text"),
        ({"rounds": "3"}, "rounds='3' should be a valid integer, not text"),
        ({"train": {"lr": "0.1"}}, "train.lr='0.1' should be a finite number, not text"),
        ({"compile": 1}, "compile=1 should be true or false"),
        ({"compile": "yes"}, "compile='yes' should be true or false"),
        ({f"k{i}": 1 for i in range(100)}, "and 70 more"),
    ],
)
def test_a_value_that_no_setting_takes(settings: dict, message: str) -> None:
    with pytest.raises(UserError) as caught:
        load(settings)
    assert message in str(caught.value)
    assert all(len(line) < 600 for line in str(caught.value).splitlines())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a = " + b"[" * 3000 + b"]" * 3000, "is nested too deeply"),
        (b"a = " + b"{b=" * 3000 + b"1" + b"}" * 3000, "is nested too deeply"),
        (b"rounds = " + b"9" * 5000, "cannot be read: Exceeds the limit (4300 digits)"),
        (b"rounds = 0x" + b"f" * 5000, "rounds: an integer of about 6,021 digits is too large"),
        (b"rounds = 1979-05-27", "is a date"),
        (b"rounds = 3\0", "is not TOML"),
        (b"#" * 2_000_000, "it has more than 1,000,000 bytes"),
        (b"\xff\xfe", "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_settings(content: bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / "odd.toml"
    file.write_bytes(content)
    with pytest.raises(UserError, match=re.escape(message)):
        load_file(file)


@pytest.mark.parametrize(
    "value",
    ["-" * 5000, "-" * 4000, "[" * 4000, "(" * 300, "9" * 5000, "b'x'", "1j", "{1}", "1e999"],
)
def test_a_value_after_set_that_is_none(value: str) -> None:
    with pytest.raises(UserError, match=r"train\.lr"):
        load(overlay({}, [assignment(f"train.lr={value}")], DEFAULTS))


def test_numbers_of_numpy_become_those_of_python() -> None:
    config = load(
        {"rounds": np.int64(3), "method": {"name": "fedprox", "fedprox": {"mu": np.float32(0.5)}}}
    )
    assert config.method["fedprox"]["mu"] == 0.5 and type(config.method["fedprox"]["mu"]) is float
    assert "mu = 0.5" in config.text()
