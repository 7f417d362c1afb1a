"""What a sweep varies: values, ranges, grids and draws."""

import random
from typing import Any

import pytest

from fedloom.core.errors import UserError
from fedloom.settings.search_space import Axis, Range, axes, axis, drawn, grid, grid_size, label


@pytest.mark.parametrize(
    ("text", "setting", "values"),
    [
        ("train.lr=0.01, 0.1", "train.lr", (0.01, 0.1)),
        ("lr=1", "train.lr", (1,)),
        ("method=fedavg,fedprox(mu=0.1)", "method", ("fedavg", "fedprox(mu=0.1)")),
        ("data.mean=[0.1,0.2],[0.3,0.4]", "data.mean", ([0.1, 0.2], [0.3, 0.4])),
        ("train.clip=none,1.5", "train.clip", (None, 1.5)),
        ("train.nesterov=true,1", "train.nesterov", (True, 1)),
        ("model=a/../own.py:net,mlp", "model", ("a/../own.py:net", "mlp")),
        ("model=a/../own.py:net", "model", ("a/../own.py:net",)),
        ("train.lr=0.001..0.1", "train.lr", Range(0.001, 0.1)),
        ("train.lr=1e-3..1e-1", "train.lr", Range(1e-3, 1e-1)),
        ("train.batch=8..64", "train.batch", Range(8, 64)),
    ],
)
def test_an_axis_as_text(text: str, setting: str, values: Any) -> None:
    assert axis(text) == Axis(setting, values)


def test_a_grid_has_all_combinations() -> None:
    found = axes({"lr": [0.1, 1], "train.batch": "8,16"})
    assert grid_size(found) == 4
    assert [label(combination) for combination in grid(found)] == [
        "train.lr=0.1 train.batch=8",
        "train.lr=0.1 train.batch=16",
        "train.lr=1 train.batch=8",
        "train.lr=1 train.batch=16",
    ]


def test_draws_differ_and_a_longer_list_begins_with_a_shorter_one() -> None:
    found = [axis("train.lr=0.001..1"), axis("train.batch=8,16,32")]
    three, nine = drawn(found, 3, seed=1), drawn(found, 9, seed=1)
    assert nine[:3] == three and len(set(nine)) == 9 and drawn(found, 3, seed=2) != three


def test_no_more_draws_than_there_are_combinations() -> None:
    values = [axis("train.lr=0.1,1"), axis("train.batch=8,16")]
    assert drawn(values, 99, seed=1) == grid(values)
    assert len(drawn([axis("train.epochs=1..3")], 99, seed=1)) == 3


def test_a_wide_range_is_drawn_on_a_log_scale() -> None:
    draws = random.Random(0)
    wide, narrow = Range(0.001, 1.0), Range(0.2, 1.0)
    values = sorted(wide.draw(draws) for _ in range(999))
    assert wide.log and 0.02 < values[499] < 0.05 and 0.001 <= values[0] <= values[-1] <= 1
    values = sorted(narrow.draw(draws) for _ in range(999))
    assert not narrow.log and 0.55 < values[499] < 0.65
    assert {type(Range(1, 3).draw(draws)) for _ in range(20)} == {int}


@pytest.mark.parametrize("text", ["train.lr", "=1", "train..lr=1", "train.lr=", "train.lr=1,"])
def test_text_of_another_form(text: str) -> None:
    with pytest.raises(UserError, match="is not of the form SETTING=VALUE,VALUE"):
        axis(text)


@pytest.mark.parametrize("values", [[0.1, 0.10], [1, 1.0], [1, "1"]])
def test_a_value_occurs_once(values: list[Any]) -> None:
    with pytest.raises(UserError, match="twice; list each value once"):
        axes({"train.lr": values})
