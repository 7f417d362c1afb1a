"""The verdict on a cell: the sign of the gain, as far as its interval tells."""

import pytest

from fedloom.claims.cell_verdict import cell_verdict
from fedloom.settings.paper_table import Printed

BASE = {0: 50.0, 1: 51.0, 2: 52.0}


def gained(*gains: float) -> dict[int, float]:
    return {seed: BASE[seed] + gain for seed, gain in enumerate(gains)}


@pytest.mark.parametrize(
    ("gains", "printed", "verdict"),
    [
        ((2.0, 2.1, 1.9), 55.0, "agrees"),
        ((-2.0, -2.1, -1.9), 55.0, "differs"),
        ((-2.0, -2.1, -1.9), 45.0, "agrees"),
        ((2.0, 2.1), 55.0, "not decided (needs 3 seeds or more)"),
    ],
)
def test_clear_gains(gains: tuple[float, ...], printed: float, verdict: str) -> None:
    assert cell_verdict(gained(*gains), BASE, Printed(printed), Printed(50.0), True) == verdict


def test_an_interval_with_zero_decides_nothing_and_says_how_many_seeds_would() -> None:
    found = cell_verdict(gained(2.0, -1.0, 1.0), BASE, Printed(55.0), Printed(50.0), True)
    assert found.startswith("not decided (") and found.endswith("seeds would)")


@pytest.mark.parametrize(("fair", "words"), [(False, "not a fair test"), (None, "gate not known")])
def test_a_gate_that_is_not_met_is_named(fair: bool | None, words: str) -> None:
    found = cell_verdict(gained(2.0, 2.1, 1.9), BASE, Printed(55.0), Printed(50.0), fair)
    assert found == f"agrees ({words})"


def test_no_verdict_without_a_printed_difference() -> None:
    assert cell_verdict(BASE, BASE, Printed(50.0), Printed(50.0), True) == "-"
    assert cell_verdict(gained(2.0, 2.0, 2.0), BASE, None, Printed(50.0), True) == "-"
