"""A claim without a suite: its cells are found in all of its tables, and no other cell is run."""

import pytest

from fedloom.claims.claim import Claim, claims
from fedloom.claims.plan_suite import suite_settings, suites_for
from fedloom.core.errors import UserError
from fedloom.settings.paper_table import Scale
from fedloom.settings.presets import preset

WITHOUT_SUITE = [claim for claim in claims() if claim.suite is None]
CANNOT_BE_RUN = {
    "fedalign/hn-gradaug-smallest": "compares column 'H_N', which cannot be computed from a run's",
    "fedalign/hd-alike": "compares column 'H_D', which cannot be computed from a run's accuracies",
    "fedmix/time-to-70-level": "column 'seconds_to_target', which no table here has",
}
Cell = tuple[str, str, str]


def planned(claim: Claim, scale: Scale) -> list[Cell]:
    (suite,) = suites_for(claim.id)
    return [(g.preset, row.name, column.name) for g, row, column, _ in suite_settings(suite, scale)]


def wanted(claim: Claim, row: str, column: str) -> list[Cell]:
    """The cell of the first table that has it, or those of all rows that are such choices."""
    for name in claim.preset.names:
        table = preset(name).table
        assert table is not None
        if column in {each.name for each in table.columns}:
            rows = [each.name for each in table.rows if row in (each.name, each.choice)]
            if rows:
                return [(name, each, column) for each in rows]
    return []


@pytest.mark.parametrize("scale", ["small", "paper"])
@pytest.mark.parametrize(
    "claim", [c for c in WITHOUT_SUITE if c.id not in CANNOT_BE_RUN], ids=lambda claim: claim.id
)
def test_every_cell_of_a_claim_is_planned_and_no_other(claim: Claim, scale: Scale) -> None:
    cells = planned(claim, scale)
    assert len(cells) == len(set(cells))
    assert set(cells) == {c for row, column in claim.cells for c in wanted(claim, row, column)}


def test_the_cells_of_a_claim_can_be_in_several_tables() -> None:
    (claim,) = (c for c in claims() if c.id == "fedalign/fedalign-below-gradaug-many-clients")
    assert set(planned(claim, "small")) == {
        ("fedalign/table4", "gradaug", "C=64"),
        ("fedalign/table6", "fedalign", "C=64"),
    }


@pytest.mark.parametrize(("name", "reason"), CANNOT_BE_RUN.items())
def test_a_claim_that_no_run_decides_says_why(name: str, reason: str) -> None:
    with pytest.raises(UserError) as error:
        suites_for(name)
    assert f"'{name}' compares" in str(error.value) and reason in str(error.value)
    assert "fedloom reproduce fed" in str(error.value)  # what can be run instead
