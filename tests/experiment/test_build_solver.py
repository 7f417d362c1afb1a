"""The solver of a run, and settings of local training that a method would not use."""

from contextlib import nullcontext
from typing import Any

import pytest

from fedloom.core.errors import UserError
from fedloom.core.optimisers import AdamRule, DecayGroups, SGDRule, SharpnessAware
from fedloom.core.rule import Rule
from fedloom.core.select import decayed
from fedloom.experiment.build_solver import build_solver, check_varied, learning_rate_note
from fedloom.experiment.prepare import check_names
from fedloom.methods import registry
from fedloom.settings.config import load

PAIR = (0.8, 0.99)


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({}, SGDRule()),
        (
            {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
            SGDRule(momentum=0.9, nesterov=True, weight_decay=0.1),
        ),
        ({"optimiser": "adam"}, AdamRule()),
        ({"optimiser": "adamw"}, AdamRule(weight_decay=0.01, decoupled=True)),
        (
            {"optimiser": "adam", "betas": PAIR, "eps": 0.1, "amsgrad": True, "weight_decay": 0.1},
            AdamRule(betas=PAIR, eps=0.1, amsgrad=True, weight_decay=0.1),
        ),
        (
            {"weight_decay": 0.1, "decay_norms": False, "sam": 0.05},
            SharpnessAware(DecayGroups(SGDRule(weight_decay=0.1), SGDRule(), decayed), 0.05),
        ),
    ],
)
def test_the_rule_of_the_settings(settings: dict[str, Any], rule: Rule) -> None:
    assert build_solver(load({"train": settings}).train, rounds=3).rule == rule


@pytest.mark.parametrize("method", ["pfedme", "perfedavg", "pfedme+fedprox"])
@pytest.mark.parametrize(
    ("settings", "unused"),
    [
        ({"momentum": 0.9, "weight_decay": 1e-4}, "train.momentum=0.9, train.weight_decay=0.0001"),
        ({"optimiser": "adam"}, "train.optimiser=adam"),
        (
            {"momentum": 0.9, "sam": 0.1, "reset": False},
            "train.momentum=0.9, train.sam=0.1, train.reset=false",
        ),
        ({"schedule": {"kind": "cosine"}}, "train.schedule.kind=cosine"),
    ],
)
def test_a_method_with_steps_of_its_own_rejects_what_it_would_not_use(
    method: str, settings: dict[str, Any], unused: str
) -> None:
    with pytest.raises(UserError) as error:
        check_names(load({"method": method, "train": settings}))
    assert f"makes steps of its own and would not use {unused}; set train." in str(error.value)


def test_the_remedy_for_an_unused_setting_works() -> None:
    """Also where a preset has set it."""
    with pytest.raises(
        UserError, match=r"set train\.momentum=0\.0, train\.nesterov=false, and see"
    ):
        check_names(load({"method": "pfedme", "train": {"momentum": 0.9, "nesterov": True}}))
    check_names(load({"method": "pfedme", "train": {"momentum": 0.0, "nesterov": False}}))


@pytest.mark.parametrize(
    "name", [name for name in registry.names() if name not in ("pfedme", "perfedavg")]
)
def test_all_other_methods_use_the_optimiser(name: str) -> None:
    check_names(load({"method": name, "train": {"momentum": 0.9, "sam": 0.1}}))
    if name != "scaffold":
        check_names(load({"method": name, "train": {"optimiser": "adamw"}}))


@pytest.mark.parametrize("optimiser", ["adam", "adamw"])
@pytest.mark.parametrize("method", ["scaffold", "fedprox+scaffold"])
def test_scaffold_needs_steps_that_are_sums_of_gradients(method: str, optimiser: str) -> None:
    with pytest.raises(UserError, match=r"set train\.optimiser=sgd"):
        check_names(load({"method": method, "train": {"optimiser": optimiser}}))


@pytest.mark.parametrize("name", registry.names())
def test_a_learning_rate_that_is_not_used_is_noted_and_cannot_be_varied(name: str) -> None:
    """An error would break comparisons and presets, whose train.lr serves all methods."""
    given, own = load({"method": name, "train": {"lr": 0.3}}), name in ("pfedme", "perfedavg")
    method = check_names(given)
    notes = [
        f"note: method '{name}' does not use train.lr=0.3; set the learning rates among its own "
        "parameters (see: fedloom methods)"
    ]
    assert [*learning_rate_note(given.train, method)] == (notes if own else [])
    assert [*learning_rate_note(load({"method": name}).train, method)] == []
    check_varied(["train.batch"], given.train, method)
    with pytest.raises(UserError, match="does not use train") if own else nullcontext():
        check_varied(["train.lr"], given.train, method)
