"""Accuracies on held-out samples are called validation accuracy wherever they are shown."""

from pathlib import Path

import pytest

import fedloom as fl
from cli.talk import TINY, fedloom, run

HELD_OUT = ("--set", "data.validation=0.2")


@pytest.fixture
def runs(desk: Path) -> tuple[str, str]:
    for method in ("fedavg", "fedprox"):
        run(desk / method, "--method", method, *HELD_OUT)
    return "fedavg", "fedprox"


def test_the_page_says_validation_accuracy(runs: tuple[str, str]) -> None:
    fedloom("report", *runs, "--html", "page.html")
    text = Path("page.html").read_text(encoding="utf-8")
    assert "test accuracy" not in text.lower()
    for words in ("validation accuracy, %", "validation accuracy %", "Validation accuracy by roun"):
        assert words in text
    assert "highest validation accuracy" in text
    assert "held out (data.validation), not on the test data" in text


@pytest.mark.parametrize("kind", ["--md", "--latex"])
def test_tables_for_papers_say_it(runs: tuple[str, str], kind: str) -> None:
    assert "validation accuracy " in fedloom("report", *runs, kind).out


def test_the_terminal_says_it(runs: tuple[str, str], desk: Path) -> None:
    assert "validation" in fedloom("report", *runs).out
    said = fedloom("run", *TINY, *HELD_OUT, "--rounds", 1, "--out", "other")
    assert "validation accuracy" in said.out and ", validation accuracy 0." in said.err
    assert "validation" not in fedloom("run", *TINY, "--rounds", 1, "--out", "test").out


def test_plots_say_it(runs: tuple[str, str]) -> None:
    compared = fl.compare(*runs)
    (axes,) = compared.plot().axes
    assert axes.get_ylabel() == "validation accuracy, %"
    assert axes.get_title().startswith("Validation accuracy by round\n")
    assert "validation accuracy %" in str(compared)


def test_runs_on_the_test_data_say_test_accuracy(desk: Path) -> None:
    run(desk / "plain")
    (axes,) = fl.compare("plain").plot().axes
    assert axes.get_ylabel() == "test accuracy, %"
    assert axes.get_title().startswith("Test accuracy by round\n")


def test_the_two_kinds_are_not_compared(runs: tuple[str, str], desk: Path) -> None:
    run(desk / "plain")
    said = fedloom("report", "plain", *runs, "--html", "page.html", code=2).flat
    assert "'plain' was evaluated on the test data, and 'fedavg' on held-out training sam" in said
    assert "(data.validation=0.2)" in said and "compare runs with data.validation=0" in said
    assert not Path("page.html").exists()


def test_a_sweep_does_not_vary_it(desk: Path) -> None:
    """It would refuse to compare its runs only after they were trained."""
    said = fedloom("sweep", *TINY, "--over", "data.validation=0,0.2", code=2).flat
    assert "evaluated on different samples" in said and "--set data.validation=0.2" in said
