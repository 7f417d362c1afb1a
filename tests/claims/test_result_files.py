"""Result files: what they must hold, which gate applies, and rows that are choices."""

import pytest

from claims.result_text import figure, text
from claims.result_text import result as result_file
from fedloom.claims.claim import Claim, claims
from fedloom.claims.result_files import parse_result
from fedloom.core.errors import UserError
from fedloom.settings.presets import preset


def claim(name: str) -> Claim:
    return next(one for one in claims() if one.id == name)


def test_figures_are_found_by_cell() -> None:
    over_fedavg = claim("fedmix/cifar10-over-fedavg")
    both = result_file(figure("fedmix", [3.0]), figure("fedavg", [2.0], rounds=50))
    read = both.reader(over_fedavg)
    assert read is not None
    assert read(("fedavg", "accuracy")).values == {0: 2.0}
    assert read(("fedavg", "accuracy")).rounds == 50
    assert result_file(figure("fedmix", [3.0])).reader(over_fedavg) is None


def test_a_further_table_may_hold_the_cells() -> None:
    """FedAlign's Table 5 repeats rows of its Table 1."""
    rows = [figure(row, [1.0], preset="fedalign/table1") for row in ("fedalign", "fedavg")]
    assert result_file(*rows).reader(claim("fedalign/fedalign-over-fedavg")) is not None


def test_a_claim_may_have_its_own_gate() -> None:
    over_fedavg = claim("fedmix/cifar10-over-fedavg")
    own = {over_fedavg.id: {"met": False, "why": "nothing to approximate"}}
    assert result_file(gate_by_claim=own).gate_of(over_fedavg).met is False
    assert result_file(gate_by_claim=own).gate_of(claim("fedmix/cifar10-over-naivemix")).met


def choices(sizes: range, drop: int = 0) -> list[dict]:
    """For every choice of pathways its number and, on the second seed, twice the number."""
    table = preset("fedmlb/table6").table
    assert table is not None
    rows = [row for row in table.rows if int(row.choice.split()[0]) in sizes]
    cell = {"preset": "fedmlb/table6", "column": "by used", "metric": "ema"}
    return [
        figure(row.name, [float(number), 2.0 * number], **cell) for number, row in enumerate(rows)
    ][drop:]


def test_the_gate_of_a_suite_is_about_its_own_claims() -> None:
    """mix-lenet asks for nothing; that says nothing about a claim that needs a gain of mixup."""
    met = result_file(suite="mix-lenet")
    assert met.gate_of(claim("fedmix/cifar10-localmix-no-help")).met is True
    other = met.gate_of(claim("fedmix/cifar10-over-fedavg"))
    assert other.met is None and "has the gate of suite mix-cnn" in other.why
    assert other.why.endswith("and was met at none of the scales tried for it")
    open_gate = met.gate_of(claim("fedmlb/over-kd"))
    assert open_gate.why.endswith("suite mlb50, which was not checked on these runs")
    without = met.gate_of(claim("fedmix/femnist-globalmixup-best"))
    assert without.met is None and without.why == "no gate was fixed for this claim"


def test_choices_of_the_same_size_are_averaged() -> None:
    read = result_file(*choices(range(1, 6))).reader(claim("fedmlb/pathways-number-monotone"))
    assert read is not None
    assert read(("1 of 5", "by used")).values == {0: 2.0, 1: 4.0}  # of 0 to 4
    spread = result_file(*choices(range(1, 5))).reader(claim("fedmlb/pathways-spread-falls"))
    assert spread is not None
    assert spread(("1 of 5", "by used")).values == {
        0: pytest.approx(2.5**0.5),
        1: pytest.approx(10**0.5),
    }


def test_a_mean_over_choices_needs_all_of_them() -> None:
    missing_one = result_file(*choices(range(1, 6), drop=1))
    assert missing_one.reader(claim("fedmlb/pathways-number-monotone")) is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"'x.json' is not valid JSON"),
        (text([], format=2), r"'x.json', field 'format'"),
        (
            text([figure("a", [float("nan")])]),
            r"field 'figures.0.by_seed.0': Input should be a fin",
        ),
        (text([figure("a", [1.0])] * 2), r"two figures for row 'a', column 'accuracy' of fedmix"),
        (text([], gate={"met": True}), r"field 'gate.why': Field required"),
    ],
)
def test_mistakes_are_named(content: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_result(content, "x.json")
