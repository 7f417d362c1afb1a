"""The claims as data: complete, unique, and about tables, rows and numbers that exist."""

import re
from pathlib import Path

import pytest

from fedloom.claims.claim import ANY, PAPERS, Claim, claims, parse_claims
from fedloom.claims.group_rules import GainDifference
from fedloom.claims.pair_rules import Equal, Gain
from fedloom.claims.suites import suites
from fedloom.core.errors import UserError
from fedloom.inspect import cost_tables
from fedloom.settings.presets import names, preset

TEXTS = Path(__file__).parents[3] / "shared" / "papers"
NUMBER = re.compile(r"\d[\d,]*\.?\d*")
MEASURED = {"step_seconds", "seconds_to_target"}  # columns that no table has

every_claim = pytest.mark.parametrize("claim", claims(), ids=lambda claim: claim.id)

ONE = """
[[claim]]
id = "fedmix/one"
where = "Table 1"
text = "FedMix is above FedAvg"
kind = "gain"
printed = [{label = "FedMix", value = "81.2"}]
rule = {better = "fedmix", than = "fedavg", metric = "accuracy", min_gain = 1.0}
preset = {name = "fedmix/table1-cifar10", rows = ["fedmix", "fedavg"], columns = ["accuracy"]}
cost = "hours"
"""


def test_there_are_180_claims_with_unique_ids() -> None:
    ids = [claim.id for claim in claims()]
    assert len(ids) == len(set(ids)) == 180
    assert {paper: len(claims(paper)) for paper in PAPERS} == {
        "fedalign": 49,
        "fedmlb": 49,
        "fedmix": 52,
        "fedafa": 30,
    }


def cells_of(name: str) -> set[tuple[str, str]]:
    """The cells of a table; rows that are choices of the same size count as one, too."""
    if name == "fedalign/cost-table5":
        rows = [row.name for row in cost_tables.table("fedalign/table5").rows]
        return {(row, column) for row in rows for column in ("mflops", "params_m")}
    table = preset(name).table
    assert table is not None
    rows = [label for row in table.rows for label in (row.name, row.choice) if label]
    columns = [*(column.name for column in table.columns), *MEASURED]
    return {(row, column) for row in rows for column in columns}


@every_claim
def test_every_cell_of_a_rule_is_in_a_table_of_the_claim(claim: Claim) -> None:
    if claim.preset.command is not None:
        assert claim.preset.command.startswith("fedloom cost ") and claim.rule.is_counted
        return
    existing = set().union(*(cells_of(name) for name in claim.preset.names))
    assert set(claim.cells) <= existing


@every_claim
def test_the_rows_and_columns_named_with_the_preset_exist(claim: Claim) -> None:
    if claim.preset.command is not None or claim.preset.name not in names():
        return
    cells = cells_of(claim.preset.name)
    for place, wanted in enumerate((claim.preset.rows, claim.preset.columns)):
        assert {name for name in wanted if ANY not in name} <= {cell[place] for cell in cells}


@every_claim
def test_a_suite_exists_and_runs_every_cell_of_its_claims(claim: Claim) -> None:
    if claim.suite is None:
        assert not any(claim.id in suite.claims for suite in suites().values())
        return
    suite = suites()[claim.suite]
    assert claim.id in suite.claims
    run = {
        (group.preset, row, column)
        for group in suite.runs
        for row in group.rows
        for column in (*group.columns, *(group.analysis.columns if group.analysis else ()))
    }
    if suite.runs:
        for row, column in claim.cells:
            assert any((name, row, column) in run for name in claim.preset.names)


@every_claim
def test_a_claim_prints_what_the_paper_has_in_the_cells_that_are_compared(claim: Claim) -> None:
    cells = {cell: printed_in(claim, cell) for cell in claim.cells}
    if None in cells.values():  # the paper prints no number to compare with
        return
    texts = [text for entry in claim.printed for text in entry.texts]
    printed = {float(number) for text in texts for number in NUMBER.findall(text)}
    assert {cell: value for cell, value in cells.items() if value not in printed} == {}


def printed_in(claim: Claim, cell: tuple[str, str]) -> float | None:
    """The number in a cell, of the first table of the claim that has it."""
    row_name, column = cell
    for name in claim.preset.names:
        table = preset(name).table if name in names() else None
        for row in table.rows if table else ():
            if row.name == row_name and column in row.printed:
                number = NUMBER.match(str(row.printed[column]))
                return float(number.group()) if number else None
    return None


@pytest.mark.shared
@pytest.mark.parametrize("paper", PAPERS)
def test_printed_numbers_occur_in_the_text_of_the_paper(paper: str) -> None:
    if not (TEXTS / f"{paper}.txt").exists():
        pytest.skip("the text of the paper is not available")
    text = (TEXTS / f"{paper}.txt").read_text(encoding="utf-8")
    printed = [
        (claim.id, number)
        for claim in claims(paper)
        for entry in claim.printed
        for printed in entry.texts
        for number in NUMBER.findall(printed)
    ]
    assert len(printed) > 60
    missing = [
        (name, number)
        for name, number in printed
        if not re.search(rf"(?<![\d.]){re.escape(number)}(?!\d)", text)
    ]
    assert not missing


ONE_SIDED = re.compile(r"no better|not help|costs (nothing|little)|worse")
EVERYTHING = re.compile(r"\b(every|everywhere|whatever|throughout|the best|the more|the fewer)\b")


def test_a_claim_of_equality_is_not_worded_as_a_bound_on_one_side() -> None:
    equal = [claim for claim in claims() if isinstance(claim.rule, Equal)]
    assert equal and not [claim.id for claim in equal if ONE_SIDED.search(claim.text)]


def test_a_comparison_of_two_rows_is_not_worded_as_one_of_all() -> None:
    """Asides are left out: "MOON, the best of three, is above FedAvg" says what is compared."""
    pairs = [claim for claim in claims() if isinstance(claim.rule, Gain | GainDifference)]
    texts = {claim.id: re.sub(r",[^,]*,", "", claim.text) for claim in pairs}
    assert pairs and not [name for name, text in texts.items() if EVERYTHING.search(text)]


def test_an_unknown_paper_is_a_user_error() -> None:
    with pytest.raises(UserError, match=r"no paper with claims 'fedmx'; did you mean 'fedmix'\?"):
        claims("fedmx")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('kind = "gain"', 'kind = "hope"', r"claim 'fedmix/one', field 'kind': Input should be"),
        ('cost = "hours"', "", r"claim 'fedmix/one', field 'cost': Field required"),
        ('cost = "hours"', 'cost = "hours"\nstatus = "ok"', r"field 'status': Extra inputs"),
        ("min_gain = 1.0", "min_gian = 1.0", r"not of the form 'Gain': min_gain: Field required"),
        ('better = "fedmix", ', "", r"a rule needs one of these keys: better, not_better"),
        ('columns = ["accuracy"]', 'columns = ["*"]', r"'fedmix' names no column; write it as"),
        ('id = "fedmix/one"', 'id = "fedafa/one"', r"'fedafa/one' is in the file of 'fedmix'"),
        ('cost = "hours"', 'cost = "hours"\nneeds = "luck"', r"no shared needs 'luck'"),
        ("[[claim]]", "[[claim", r"the claims of 'fedmix' are not valid TOML"),
    ],
)
def test_mistakes_are_named(old: str, new: str, message: str) -> None:
    assert parse_claims(ONE, "fedmix")[0].id == "fedmix/one"
    with pytest.raises(UserError, match=message):
        parse_claims(ONE.replace(old, new), "fedmix")


def test_two_claims_with_one_id_are_refused() -> None:
    with pytest.raises(UserError, match="two claims are called 'fedmix/one'"):
        parse_claims(ONE + ONE, "fedmix")
