"""Every form of a rule: its cells, its comparisons, and the verdict on figures made for it."""

import math
from typing import Any

import numpy as np
import pytest

from fedloom.claims.comparison import Cell, Comparison, Series
from fedloom.claims.judgement import judge
from fedloom.claims.rule import Rule
from fedloom.claims.rules import parse_rule

COLUMN = "end"
Figures = dict[str, list[float | None]]


def compared(rule: Rule, figures: Figures, rounds: int | None = 100) -> list[Comparison]:
    """The comparisons of a rule; figures: by row, or by "row @ column"."""

    def read(cell: Cell) -> Series:
        row, column = cell
        values = figures.get(f"{row} @ {column}") or figures[row]
        return Series(dict(enumerate(values)), rounds)

    return rule.comparisons(read, COLUMN)


def rule(**parts: Any) -> Rule:
    return parse_rule({"metric": "accuracy", **parts})


def outcome(of: Rule, figures: Figures, **given: Any) -> list[str]:
    return [judge(c).outcome for c in compared(of, figures, **given)]


LOW, MIDDLE, HIGH = [10.0, 11.0, 12.0], [15.1, 16.0, 16.9], [20.2, 21.0, 21.8]
NEAR_LOW = [10.1, 11.2, 12.1]


@pytest.mark.parametrize(
    ("parts", "figures", "expected"),
    [
        ({"better": "a", "than": "b", "min_gain": 1.0}, {"a": HIGH, "b": LOW}, ["agrees"]),
        ({"better": "a", "than": "b", "min_gain": 20.0}, {"a": HIGH, "b": LOW}, ["differs"]),
        ({"better": "a", "than": "b", "min_gain": 10.0}, {"a": HIGH, "b": LOW}, ["not decided"]),
        ({"not_better": "a", "than": "b", "max_gain": 1.0}, {"a": LOW, "b": HIGH}, ["agrees"]),
        ({"not_better": "a", "than": "b", "max_gain": 1.0}, {"a": HIGH, "b": LOW}, ["differs"]),
        ({"not_worse": "a", "than": "b", "max_loss": 2.0}, {"a": HIGH, "b": LOW}, ["agrees"]),
        ({"not_worse": "a", "than": "b", "max_loss": 2.0}, {"a": LOW, "b": HIGH}, ["differs"]),
        ({"a": "a", "b": "b", "within": 1.0}, {"a": NEAR_LOW, "b": LOW}, ["agrees"]),
        ({"a": "a", "b": "b", "within": 1.0}, {"a": HIGH, "b": LOW}, ["differs"]),
        (
            {"gain_of": "a", "over": "b", "at_least": 9.0, "at_most": 11.0},
            {"a": HIGH, "b": LOW},
            ["agrees"],
        ),
        (
            {"of": "a", "to": "b", "at_least": 1.5, "at_most": 2.5},
            {"a": HIGH, "b": LOW},
            ["agrees"],
        ),
        (
            {"of": "a", "to": "b", "at_least": 3.0, "at_most": 4.0},
            {"a": HIGH, "b": LOW},
            ["differs"],
        ),
        (
            {"order": ["a", "b", "c"], "first": "largest"},
            {"a": HIGH, "b": MIDDLE, "c": LOW},
            ["agrees", "agrees"],
        ),
        (
            {"order": ["a", "b", "c"], "first": "smallest"},
            {"a": HIGH, "b": MIDDLE, "c": LOW},
            ["differs", "differs"],
        ),
        ({"best_in": ["a", "b"], "out": ["c"]}, {"a": HIGH, "b": MIDDLE, "c": LOW}, ["agrees"]),
        (
            {"best_in": ["c"], "out": ["a", "b"]},
            {"a": HIGH, "b": MIDDLE, "c": LOW},
            ["differs", "differs"],
        ),
        (
            {"best_in": ["b"], "out": ["a", "c"]},
            {"a": HIGH, "b": MIDDLE, "c": LOW},
            ["differs", "agrees"],
        ),
    ],
)
def test_each_form_decides(parts: dict[str, Any], figures: Figures, expected: list[str]) -> None:
    assert outcome(rule(**parts), figures) == expected


def test_a_cell_names_its_column_or_takes_that_of_the_rule() -> None:
    gain = rule(better="a @ half", than="b", min_gain=0.0, column="last")
    assert gain.cells("end") == [("a", "half"), ("b", "last")]
    assert rule(better="a", than="b", min_gain=0.0).cells("end") == [("a", "end"), ("b", "end")]


def test_a_gain_in_several_columns_is_compared_in_each() -> None:
    gain = rule(better="a", than="b", min_gain=1.0, columns=["x", "y"])
    figures = {"a @ x": HIGH, "b @ x": LOW, "a @ y": LOW, "b @ y": HIGH}
    assert outcome(gain, figures) == ["agrees", "differs"]


def test_monotone_needs_apart_ends_and_no_clear_step_back() -> None:
    rises = rule(over=["a", "b", "c"], direction="rises", slack=0.5)
    ends, *steps = compared(rises, {"a": LOW, "b": MIDDLE, "c": HIGH})
    assert ends.required and not any(step.required for step in steps)
    assert outcome(rises, {"a": LOW, "b": MIDDLE, "c": HIGH})[0] == "agrees"
    back = outcome(rises, {"a": LOW, "b": HIGH, "c": MIDDLE})
    assert back[0] == "agrees" and "differs" in back[1:]
    falls = rule(over=["a", "b"], direction="falls", slack=0.5)
    assert outcome(falls, {"a": HIGH, "b": LOW}) == ["agrees"]
    assert outcome(falls, {"a": LOW, "b": HIGH}) == ["differs"]


def test_the_difference_of_two_gains() -> None:
    grows = rule(gain_of="a", over="b", larger_at="x", than_at="y", min_gain=0.5)
    figures = {"a @ x": [9.0, 9.5], "b @ x": [4.0, 4.0], "a @ y": [5.0, 5.0], "b @ y": [4.0, 3.0]}
    (found,) = compared(grows, figures)
    assert found.differences == {0: 4.0, 1: 3.5}


def test_rounds_are_compared_as_log_ratios_with_missed_targets() -> None:
    faster = rule(metric="rounds_to_target", of="a", to="b", at_least=1.3, at_most=9.0)
    (found,) = compared(faster, {"a": [80, None, None], "b": [40, 50, None]}, rounds=99)
    assert found.differences == {
        0: pytest.approx(math.log(2)),
        1: pytest.approx(math.log(2)),
        2: None,
    }
    assert judge(found).outcome == "not decided"
    assert "seed 2" in judge(found).reason


def test_reaching_a_target_needs_six_seeds() -> None:
    reaches = rule(metric="rounds_to_target", reaches="a", misses="b")
    assert outcome(reaches, {"a": [9.0] * 5, "b": [None] * 5}) == ["not decided"]
    assert outcome(reaches, {"a": [9.0] * 6, "b": [None] * 6}) == ["agrees"]
    assert outcome(reaches, {"a": [None] * 6, "b": [9.0] * 6}) == ["differs"]
    (unknown,) = compared(reaches, {"a": [None], "b": [None]})
    assert unknown.differences == {0: None}


def test_unpaired_samples_use_all_their_seeds() -> None:
    harder = rule(better="a", than="b", min_gain=0.0, unpaired=True)
    (found,) = compared(harder, {"a": HIGH, "b": LOW})
    assert found.pair == (HIGH, LOW)
    assert judge(found).outcome == "agrees"


def test_a_log_scale_needs_positive_numbers() -> None:
    order = rule(order=["a", "b"], first="largest", scale="log")
    (found,) = compared(order, {"a": [2.0, -1.0], "b": [1.0, 1.0]})
    assert found.differences == {0: pytest.approx(math.log(2)), 1: None}


def test_the_best_is_compared_with_every_cell_outside() -> None:
    """Outside a is better on one seed and b on the others: neither is chosen, both are compared."""
    best = rule(best_in=["x", "y"], out=["a", "b"])
    figures = {"x": [5.0, 5.0, 5.0], "y": [4.0, 4.0, 9.0], "a": [6.0, 1.0, 1.0], "b": LOW}
    first, second = compared(best, figures)
    # y is best on seeds 1 and 2 and on 0 and 2, x on 0 and 1
    assert first.label == "best of x, y - a"
    assert first.differences == {0: -2.0, 1: 3.0, 2: 4.0}
    assert second.label == "best of x, y - b"
    (alone,) = compared(rule(best_in=["x"], out=["a"]), figures)
    assert (alone.label, alone.differences) == ("x - a", {0: -1.0, 1: 4.0, 2: 4.0})


@pytest.mark.parametrize("inside", [1, 2])
def test_the_best_of_equal_cells_agrees_no_more_often_than_its_level(inside: int) -> None:
    """Under no difference a two-sided 95 % interval lies above 0 in 2.5 % of all cases at most."""
    rng, agreed, trials, t_95 = np.random.default_rng(inside), 0, 2000, 2.776
    names = ["a", "b"][:inside]
    best = rule(best_in=names, out=["c", "d"])
    for _ in range(trials):
        figures = {name: list(rng.normal(0, 1, 5)) for name in [*names, "c", "d"]}
        found = np.array([list(c.differences.values()) for c in compared(best, figures)])
        low = found.mean(axis=1) - t_95 * found.std(axis=1, ddof=1) / math.sqrt(5)
        agreed += bool((low > 0).all())
    assert agreed / trials <= 0.025


def test_one_seed_says_so_even_if_the_best_cannot_be_chosen() -> None:
    (found,) = compared(rule(best_in=["a"], out=["b"]), {"a": [2.0], "b": [1.0]})
    assert judge(found).reason.startswith("one seed gives no interval")
