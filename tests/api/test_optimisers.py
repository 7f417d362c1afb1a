"""Optimisers from Python: a run that was stopped, on any engine, ends with the same bits."""

from pathlib import Path
from typing import Any

import pytest

import fedloom as fl
from api.test_run import StopAfter
from api.tiny import experiment, sha

CASES = {
    "adamw": {"optimiser": "adamw", "train": {"decay_norms": False, "reset": False}},
    "adam": {"optimiser": "adam", "train": {"amsgrad": True, "reset": False}},
    "sam": {"train": {"momentum": 0.9, "sam": 0.05, "reset": False}},
}


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES)
@pytest.mark.parametrize("model", ["mlp", "resnet8(width=4)"])
def test_a_stopped_run_resumes_with_the_same_bits(
    settings: dict[str, Any], model: str, desk: Path
) -> None:
    made = experiment(model=model, engine="inprocess", **settings)
    whole = made.run()
    with pytest.raises(KeyboardInterrupt):
        made.run("stopped", callbacks=[StopAfter(2)])
    assert sha(fl.open("stopped").resume()) == sha(whole)
    forgetful = made.replace(train={**settings["train"], "reset": True})
    assert sha(forgetful.run()) != sha(whole)


def test_the_argument_is_the_setting() -> None:
    made = fl.Experiment(optimiser="adamw")
    assert made.config.train.model_dump(include={"optimiser", "lr", "weight_decay"}) == {
        "optimiser": "adamw",
        "lr": 0.001,
        "weight_decay": 0.01,
    }
    assert made.replace(optimiser=None).config == fl.Experiment().config
