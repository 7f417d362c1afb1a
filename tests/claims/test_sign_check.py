"""One cell of a table: the sign of the difference, as far as its interval tells."""

import pytest

from fedloom.claims.sign_check import sign_check
from fedloom.settings.paper_table import Printed

CLEAR = [2.0, 2.1, 1.9]


@pytest.mark.parametrize(
    ("differences", "printed", "said"),
    [
        (CLEAR, 55.0, "agrees"),
        ([-d for d in CLEAR], 55.0, "differs"),
        ([-d for d in CLEAR], 45.0, "agrees"),
        ([2.0, 2.1], 55.0, "not decided (needs 3 seeds or more)"),
        ([2.0, 2.0, 2.0], 55.0, "not decided (the same on every seed)"),
        ([0.5, -0.5, 0.01], 55.0, "not decided (more than 200 seeds would decide)"),
    ],
)
def test_the_sign(differences: list[float], printed: float, said: str) -> None:
    assert sign_check(differences, Printed(printed), Printed(50.0), True) == said


def test_an_interval_with_zero_decides_nothing_and_says_how_many_seeds_would() -> None:
    """Mean 0.667, spread 1.528: at 99 % the half-width is below the mean from 39 seeds on."""
    open_ones = ([2.0, -1.0, 1.0], Printed(55.0), Printed(50.0), True)
    assert sign_check(*open_ones) == "not decided (39 seeds would decide)"
    assert sign_check(*open_ones, extended=True) == "not decided"


def test_after_an_extension_99_percent_count() -> None:
    """2.0 +- 1.24 at 95 %, but +- 2.87 at 99 %."""
    values = ([1.5, 2.0, 2.5], Printed(55.0), Printed(50.0), True)
    assert sign_check(*values) == "agrees"
    assert sign_check(*values, extended=True) == "not decided"


@pytest.mark.parametrize(("fair", "words"), [(False, "not a fair test"), (None, "gate not known")])
def test_a_gate_that_is_not_met_is_named(fair: bool | None, words: str) -> None:
    assert sign_check(CLEAR, Printed(55.0), Printed(50.0), fair) == f"agrees ({words})"


def test_nothing_is_said_without_a_printed_difference() -> None:
    assert sign_check(CLEAR, Printed(50.0), Printed(50.0), True) == "-"
    assert sign_check(CLEAR, None, Printed(50.0), True) == "-"
