"""Settings of the optimiser: its defaults, and what would have no effect."""

from typing import Any

import pytest

from fedloom.core.errors import UserError
from fedloom.settings.config import Config, load
from fedloom.settings.train import TrainSettings


def train(**settings: Any) -> TrainSettings:
    return load({"train": settings}).train


@pytest.mark.parametrize(
    ("settings", "lr", "weight_decay"),
    [
        ({}, 0.05, 0.0),
        ({"optimiser": "sgd"}, 0.05, 0.0),
        ({"optimiser": "adam"}, 0.001, 0.0),
        ({"optimiser": "adamw"}, 0.001, 0.01),
        ({"optimiser": "adamw", "lr": 0.05, "weight_decay": 0.0}, 0.05, 0.0),
    ],
)
def test_an_optimiser_brings_the_defaults_of_torch(
    settings: dict[str, Any], lr: float, weight_decay: float
) -> None:
    found = train(**settings)
    assert (found.lr, found.weight_decay) == (lr, weight_decay)


def test_stored_settings_are_read_as_they_were() -> None:
    for settings in ({"optimiser": "adamw"}, {"optimiser": "adam", "lr": 0.05}):
        config = load({"train": settings})
        assert load(config.model_dump(mode="json")) == config


def test_other_settings_are_as_they_were() -> None:
    """Folders of suites are named by the settings that differ from their defaults."""
    assert Config().model_dump(exclude_defaults=True) == {}
    assert train(momentum=0.9).model_dump(exclude_defaults=True) == {"momentum": 0.9}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimiser": "adam", "momentum": 0.9}, "momentum=0.9 is for sgd"),
        ({"optimiser": "adamw", "nesterov": True}, "nesterov=true is for sgd"),
        ({"betas": [0.8, 0.9]}, r"betas=\[0.8, 0.9\] is for adam and adamw"),
        ({"eps": 1e-3}, "eps=0.001 is for adam and adamw"),
        ({"amsgrad": True}, "leave out train.amsgrad, or set train.optimiser=adam"),
        ({"nesterov": True}, "set train.momentum=0.9"),
        ({"decay_norms": False}, "decay_norms=false needs weight_decay above 0"),
        ({"optimiser": "adam", "decay_norms": False}, "needs weight_decay above 0"),
        ({"optimiser": "lamb"}, "'sgd', 'adam' or 'adamw'"),
        ({"optimiser": 3}, "'sgd', 'adam' or 'adamw'"),
        ({"optimiser": "adam", "betas": [0.9]}, r"betas=\[0.9\] should be 2 numbers, such as"),
        ({"optimiser": "adam", "betas": 0.9}, r"should be 2 numbers, such as \[0.9, 0.999\]"),
        ({"optimiser": "adam", "betas": [0, 0, 0]}, r"=\[0, 0, 0\] should be 2 numbers"),
        ({"reset": False}, r"reset=false keeps the momentum .* leave out train\.reset"),
        ({"optimiser": "adam", "betas": [0.9, 1.0]}, "less than 1"),
        ({"optimiser": "adam", "betas": ["0.9", 0.99]}, "train.betas.0"),
        ({"optimiser": "adam", "eps": 0}, "greater than 0"),
        ({"sam": -0.1}, "greater than or equal to 0"),
    ],
)
def test_what_has_no_effect_is_rejected(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        train(**settings)


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(UserError) as error:
        train(optimiser="adam", momentum=0.9, nesterov=True, decay_norms=False)
    for name in ("momentum=0.9", "nesterov=true", "decay_norms=false"):
        assert name in str(error.value)
