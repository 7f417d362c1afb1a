"""The vectorised engine on real data, within the stated tolerance."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fedloom.core.params import Params, sha256
from fedloom.core.round import rounds
from fedloom.core.simulation import init_state
from fedloom.core.state import MemoryStore
from fedloom.engines.vectorised import Vectorised
from fedloom.experiment.prepare import PreparedRun, prepare
from fedloom.settings.config import load
from support.vectorised import NoFallback, max_difference

REAL = {
    "rounds": 3,
    "seed": 3,
    "model": "mlp(layers=1, width=16)",
    "data": {"clients": 200, "partition": "dirichlet(alpha=0.3)"},
    "train": {"batch": 20, "momentum": 0.9, "clip": 5.0},
    "sample": {"per_round": 9},
    "engine": "inprocess",
}


def after(prepared: PreparedRun, engine: Any, count: int) -> Params:
    simulation = replace(prepared.simulation, engine=engine)
    *_, (state, _) = rounds(
        simulation, init_state(simulation, prepared.model), MemoryStore(), count
    )
    return state.params


def assert_alike_on_real_data(tolerance: float, **changes: Any) -> None:
    prepared = prepare(load({**REAL, **changes}))
    federation = prepared.simulation.federation
    engine = Vectorised(federation, NoFallback())
    for count in (1, 3):
        assert (
            max_difference(
                after(prepared, prepared.simulation.engine, count), after(prepared, engine, count)
            )
            < tolerance
        )


@pytest.mark.parametrize("method", ["fedavg", "fedprox(mu=0.1)", "scaffold"])
def test_real_data_within_the_stated_tolerance(method: str) -> None:
    assert_alike_on_real_data(1e-5, method=method, train={"batch": 20})
    assert_alike_on_real_data(1e-10, method=method, dtype="float64")


def test_a_convolutional_net() -> None:
    data = {"clients": 600, "partition": "dirichlet(alpha=0.3)"}
    assert_alike_on_real_data(
        1e-5, model="lenet5", data=data, train={"batch": 10}, sample={"per_round": 4}
    )


def test_augmentation_draws_the_same_as_in_process() -> None:
    data = {**REAL["data"], "augment": ["flip", "pad-crop"]}  # type: ignore[dict-item]
    assert_alike_on_real_data(1e-10, data=data, dtype="float64")


def test_one_seed_has_one_result() -> None:
    prepared = prepare(load(REAL))
    federation = prepared.simulation.federation
    first, second = (
        sha256(after(prepared, Vectorised(federation, NoFallback()), 2)) for _ in range(2)
    )
    assert first == second
