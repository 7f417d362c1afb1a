"""Data passed as objects: a run goes on with the same content only, whatever it is called."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import fedloom as fl
from api.tiny import experiment, sha
from cli import talk
from fedloom.data import store
from fedloom.data.dataset import Dataset
from fedloom.experiment.execute import execute
from fedloom.experiment.train import Interrupted


def dataset(flip: bool = False) -> Dataset:
    """The stored data set 'tiny' under its own name, if asked for with one bit flipped."""
    tiny = store.load("tiny")
    x = tiny.train.x.clone()
    if flip:
        x[7, 0, 3, 3] ^= 1
    return replace(tiny, train=replace(tiny.train, x=x))


def interrupted(made: fl.Experiment, folder: str) -> None:
    """A run that was stopped after its first round."""
    inputs = made.inputs
    with pytest.raises(Interrupted):
        execute(inputs.config, Path(folder), dataset=inputs.dataset, stop=lambda: True)


def test_a_run_with_a_data_set_object_needs_the_same_data_again(desk: Path) -> None:
    made = experiment(data=dataset())
    interrupted(made, "run")
    said = talk.fedloom("resume", "run", code=2)
    assert "were passed as a Python object" in said.flat
    assert "pass them again with fedloom.open(FOLDER, data=...)" in said.flat
    with pytest.raises(fl.UserError, match=r"pass them again with fedloom\.open"):
        fl.open("run").resume()
    for other in (dataset(flip=True), "tiny"):
        with pytest.raises(fl.UserError, match="the run was made with data 'tiny', and this is"):
            fl.open("run", data=other)
    assert sha(fl.open("run", data=dataset()).resume()) == sha(made.run())


def test_content_counts_and_not_the_name(desk: Path) -> None:
    """The name of an object holds the start of its checksum; the folder holds all of it."""
    made = experiment(data=dataset())
    interrupted(made, "run")
    disguised = replace(dataset(flip=True), name=made.config.data.name)
    with pytest.raises(fl.UserError) as error:
        execute(made.config, Path("run"), dataset=disguised)
    message = str(error.value)
    assert "'run' was made with data 'tiny' (sha256 " in message
    assert "the training samples differ; put the earlier data back" in message


def test_a_run_on_other_data_than_its_settings_name_does_not_resume_on_these(desk: Path) -> None:
    """`execute` can be given a data set under settings that name a stored one."""
    made = experiment()
    with pytest.raises(Interrupted):
        execute(made.config, Path("run"), dataset=dataset(flip=True), stop=lambda: True)
    said = talk.fedloom("resume", "run", code=2)
    assert "'run' was made with data 'tiny' (sha256 " in said.flat
    assert "the training samples differ" in said.flat


def test_data_that_were_replaced_are_rejected_by_every_use_of_a_run(desk: Path) -> None:
    store.save(replace(dataset(), name="own"))
    made = experiment(data="own")
    made.run("done")
    fl.compare(made, methods=["fedavg"], folder="all")
    interrupted(made, "begun")
    store.save(replace(dataset(flip=True), name="own"), replace=True)
    samples = torch.zeros(1, 1, 8, 8, dtype=torch.uint8)
    done = fl.open("done")
    for use in (
        fl.open("begun").resume,
        lambda: done.model,
        lambda: done.classes,
        lambda: done.client(0),
        lambda: done.predict(samples),
        lambda: made.run("done"),
        lambda: fl.compare(made, methods=["fedavg", "fedprox"], folder="all"),
    ):
        with pytest.raises(fl.UserError, match=r"made with data 'own' .* training samples diff"):
            use()
    store.save(replace(dataset(), name="own"), replace=True)
    assert sha(fl.open("begun").resume()) == sha(done)


def test_runs_on_different_data_are_not_compared(desk: Path) -> None:
    one, other = experiment(data=dataset()).run(), experiment(data=dataset(flip=True)).run("b")
    with pytest.raises(fl.UserError, match=r"'fedavg seed 0' was made with data 'tiny' .*'b' with"):
        fl.compare(one, other)
    with pytest.raises(fl.UserError, match="the training samples differ; compare runs on the same"):
        fl.compare(one, "b")


def test_a_comparison_of_different_settings_says_so(desk: Path) -> None:
    compared = fl.compare(experiment().run(), experiment(method="fedprox", batch=20).run("b"))
    assert compared.notes == ("train.batch differs: 10 in 'fedavg seed 0'; 20 in 'b'",)
    assert str(compared).endswith(f"\nnote: {compared.notes[0]}")
    assert compared.to_json()["notes"] == list(compared.notes)
    assert fl.compare(experiment(), methods=["fedavg", "fedprox"], seeds=2).notes == ()
