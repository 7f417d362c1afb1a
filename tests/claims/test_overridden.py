"""Settings of the user over those of a suite."""

import pytest

from fedloom.claims.overridden import changed_settings
from fedloom.settings.config import load

FIXED = {"rounds": 120, "model": "resnet8(width=16)", "train": {"epochs": 2}}


@pytest.mark.parametrize(
    ("given", "changes"),
    [
        ({}, []),
        ({"rounds": 1}, ["rounds=1"]),
        ({"train": {"epochs": 1}}, ["train.epochs=1"]),
        ({"model": "mlp(layers=1)"}, ["model.name=mlp", "model.layers=1"]),
        ({"model": "resnet8"}, ["without model.width"]),
        ({"engine": "inprocess", "workers": 2, "seed": 7, "checkpoint_every": 20}, []),
    ],
)
def test_what_was_changed(given: dict, changes: list[str]) -> None:
    assert changed_settings(load(FIXED), load({**FIXED, **given})) == changes
