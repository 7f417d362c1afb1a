"""The report page from Python: the same bytes as the command writes."""

from pathlib import Path

import numpy as np
import pytest

import fedloom as fl
from api.tiny import experiment
from cli.talk import fedloom
from fedloom.metrics.curve import CurveOptions


def test_the_page_of_a_comparison_is_the_page_of_the_command(desk: Path) -> None:
    made = experiment(rounds=2)
    compared = fl.compare(made, methods=["fedprox", "fedavg", "ditto"], seeds=2, folder="all")
    assert compared.report("from/python.html") == Path("from/python.html")
    folders = [run.path for run in compared.all_runs]
    fedloom("report", *folders, "--html", "command.html")
    assert Path("from/python.html").read_bytes() == Path("command.html").read_bytes()


def test_options_are_those_of_the_comparison(desk: Path) -> None:
    runs = [experiment(method=method).run(method) for method in ("fedavg", "fedprox")]
    compared = fl.compare(*runs, options=CurveOptions(targets=(0.3,), at=(2,), ema=0.5))
    compared.report("python.html")
    words = ("--target", 0.3, "--at", 2, "--ema", 0.5)
    fedloom("report", "fedavg", "fedprox", *words, "--html", "command.html")
    assert Path("python.html").read_bytes() == Path("command.html").read_bytes()


def test_the_page_of_one_run(desk: Path) -> None:
    run = experiment().run("one")
    run.report("python.html")
    fedloom("report", "one", "--html", "command.html")
    assert Path("python.html").read_bytes() == Path("command.html").read_bytes()


def test_a_run_on_arrays_has_a_page_with_every_picture(desk: Path) -> None:
    """As long as the arrays are there: in the session that made the run, or if passed again."""
    x, y = np.random.default_rng(0).normal(size=(80, 5)).astype("float32"), np.arange(80) % 2
    made = experiment(data=(x, y), partition="iid")
    text = made.run().report("page.html").read_text(encoding="utf-8")
    assert "80 training samples" not in text and "64 training samples" in text
    assert "not shown" not in text
    folder = made.run("kept").folder
    again = fl.open(folder or "", data=(x, y)).report("again.html").read_text(encoding="utf-8")
    assert "64 training samples" in again and "not shown" not in again
    alone = fl.open(folder or "").report("alone.html").read_text(encoding="utf-8")
    assert "pass them again with fedloom.open(FOLDER, data=...)" in alone


def test_a_run_without_a_round_has_no_page_yet(desk: Path) -> None:
    class Crash(fl.Callback):
        def on_start(self, start: object) -> None:
            raise OSError("the power fails")

    with pytest.raises(OSError, match="power"):
        experiment().run("begun", callbacks=[Crash()])
    with pytest.raises(fl.UserError, match="'begun' has no evaluation yet; resume it first"):
        fl.open("begun").report("page.html")
    assert not Path("page.html").exists()
