"""Files read from Python, with the options of the command line."""

from __future__ import annotations

import warnings

import pytest

import fedloom as fl
from fedloom.core.warn import FedloomWarning


@pytest.fixture
def folder(tmp_path):
    for name, header in (("north", "age;weight;ill"), ("south", "Alter;weight;ill")):
        rows = [f"{30 + i % 9};{60 + i % 7},5;{'yn'[i * i % 3 == 1]}" for i in range(30)]
        (tmp_path / f"{name}.csv").write_text("\n".join([header, *rows]))
    return tmp_path


OPTIONS = {"decimal": ",", "columns": {"Alter": "age"}, "target": "ill"}


def test_read_and_run(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = fl.data.read(folder, **OPTIONS)
    assert fl.data.summary(dataset)["clients"]["count"] == 2
    run = fl.Experiment("fedavg", "mlp(width=4)", dataset, per_round=2, rounds=1).run()
    assert 0 <= run.accuracy <= 1


def test_the_same_as_stored(folder, tmp_path):
    stored = fl.data.add("h", folder, options=OPTIONS, root=tmp_path / "root")
    assert fl.data.load("h", tmp_path / "root").about == stored.about
    assert stored.about == fl.data.read(folder, **OPTIONS).about


def test_warnings_point_to_the_line_of_the_user(folder):
    (folder / "west.csv").write_text("age;weight;ill\n30;60,5;y\n31;61,5;n\n")
    with pytest.warns(
        FedloomWarning, match=r"few samples at 1 of 3 clients .* 'west' \(2\)"
    ) as seen:
        fl.data.read(folder, **OPTIONS)
    assert seen[0].filename == __file__
    said = []
    fl.data.read(folder, **OPTIONS, warn=said.append)
    assert len(said) == 1
