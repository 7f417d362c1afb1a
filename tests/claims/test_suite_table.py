"""The figures of a suite next to the paper's, as text."""

from claims.result_text import figure, result
from fedloom.claims.suite_table import GAINS, RATIOS, figure_tables

FEDAVG, FEDMIX = figure("fedavg", [50.0, 51.0, 52.0]), figure("fedmix", [53.0, 54.5, 55.0])
ROUNDS = {"column": "rounds", "metric": "rounds(to=0.7)", "rounds": 120}


def test_values_gains_interval_and_sign() -> None:
    (table,) = figure_tables(result(FEDAVG, FEDMIX))
    assert (table.preset, table.column) == ("fedmix/table1-cifar10", "accuracy")
    assert (table.base, table.heads, table.notes) == ("fedavg", GAINS, [])
    assert table.lines[0] == ["fedavg", "51.00", "-", "-", "-", "73.8", "-"]
    assert table.lines[1] == [
        "fedmix", "54.17", "+3.00 +3.50 +3.00", "+3.17", "[+2.45, +3.88]", "81.2", "agrees",
    ]  # fmt: skip


def test_after_an_extension_the_interval_is_longer() -> None:
    (table,) = figure_tables(result(FEDAVG, FEDMIX, extended=True))
    assert table.lines[1][4] == "[+1.51, +4.82]"


def test_gains_are_over_fedavg_wherever_it_stands() -> None:
    (table,) = figure_tables(result(FEDMIX, FEDAVG))
    assert table.base == "fedavg" and table.lines[0][3] == "+3.17" and table.lines[1][3] == "-"


def test_the_first_row_is_the_baseline_if_the_paper_prints_nothing_for_fedavg() -> None:
    about = {"preset": "fedafa/table1", "column": "C10 a=0.5 recall", "metric": "personal"}
    rows = [figure(row, [1.0, 2.5], **about) for row in ("fedavg-ft", "fedavg", "crt")]
    (table,) = figure_tables(result(*rows))
    assert table.base == "fedavg-ft"
    assert table.metric.startswith("recall, mean over a client's classes")


def test_rounds_are_compared_as_ratios() -> None:
    """Log ratios -0.693, -0.693 and -0.847: mean -0.745, +- 0.221."""
    ours, theirs = [45.0, 40.0, 30.0], [90.0, 80.0, 70.0]
    (table,) = figure_tables(
        result(figure("fedavg", theirs, **ROUNDS), figure("fedmix", ours, **ROUNDS))
    )
    assert table.heads == RATIOS and table.metric == "rounds to 70 % on the accuracy"
    assert table.lines[1][2:] == ["0.5 0.5 0.429", "0.475", "[0.381, 0.592]", "162", "agrees"]


def test_seeds_that_reached_a_target_are_not_picked_out() -> None:
    (table,) = figure_tables(
        result(figure("fedavg", [90, 80, 70], **ROUNDS), figure("fedmix", [50, None, 40], **ROUNDS))
    )
    assert table.lines[1] == [
        "fedmix", "120+ (2 of 3)", "-", "-", "-", "162", "not decided (target not reached)",
    ]  # fmt: skip
    assert table.notes[0].startswith("No ratios: no row but fedavg reaches the target on every")


def test_empty_columns_say_why() -> None:
    lost = [None, 80, 70]
    (table,) = figure_tables(
        result(figure("fedavg", lost, **ROUNDS), figure("fedmix", [50, 60, 40], **ROUNDS))
    )
    assert table.notes[0].startswith("No ratios: fedavg does not reach the target on every seed")
    rows = [figure(row, [1.0, 2.0, 3.0], preset="nowhere") for row in ("fedavg", "other")]
    assert figure_tables(result(*rows))[0].notes == ["The paper prints no numbers in these cells."]


def test_the_hessian_is_compared_as_ratios_of_positive_numbers() -> None:
    about = {"preset": "fedalign/table1", "column": "H_T", "metric": "trace.hutch++.value"}
    rows = {"fedavg": [100.0, 200.0, 300.0], "mixup": [50.0, 100.0, 160.0], "odd": [-1.0, 1.0, 1.0]}
    (table,) = figure_tables(result(*(figure(row, v, **about) for row, v in rows.items())))
    assert table.heads == RATIOS and table.lines[1][2] == "0.5 0.5 0.533"
    assert table.lines[2][2:5] == ["-", "-", "-"]
