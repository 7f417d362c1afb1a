"""The figures of a suite next to the paper's, as text."""

from claims.result_text import figure, result
from fedloom.claims.suite_table import figure_tables

FEDAVG, FEDMIX = figure("fedavg", [50.0, 51.0, 52.0]), figure("fedmix", [53.0, 54.5, 55.0])


def test_values_gains_interval_and_verdict() -> None:
    (table,) = figure_tables(result(FEDAVG, FEDMIX))
    assert (table.preset, table.column) == ("fedmix/table1-cifar10", "accuracy")
    assert table.lines[0] == ["fedavg", "51.00", "-", "-", "-", "73.8", "-"]
    assert table.lines[1] == [
        "fedmix", "54.17", "+3.00 +3.50 +3.00", "+3.17", "[+2.45, +3.88]", "81.2", "agrees",
    ]  # fmt: skip


def test_after_an_extension_the_interval_is_longer() -> None:
    (table,) = figure_tables(result(FEDAVG, FEDMIX, extended=True))
    assert table.lines[1][4] == "[+1.51, +4.82]"


def test_seeds_that_reached_a_target_are_not_picked_out() -> None:
    rounds = {"column": "rounds", "metric": "rounds", "rounds": 120}
    (table,) = figure_tables(
        result(figure("fedavg", [90, 80, 70], **rounds), figure("fedmix", [50, None, 40], **rounds))
    )
    assert table.lines[1] == [
        "fedmix", "120+ (2 of 3)", "-", "-", "-", "162", "not decided (target not reached)",
    ]  # fmt: skip
