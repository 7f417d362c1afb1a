"""A state from a file is compared with what the run's model, method and settings lead to."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from fedloom.core.params import Params
from fedloom.core.server import Cohort, Memory, Stage
from fedloom.core.state import ServerState
from fedloom.core.state_check import Expected, state_problem
from fedloom.experiment.prepare import PreparedRun, prepare
from fedloom.experiment.train import train
from fedloom.methods.listing import names
from fedloom.settings.config import load

BASE = {
    "model": "mlp(layers=2,width=3)",
    "data": {"name": "crowd-4", "clients": 0, "partition": "user"},
    "sample": "uniform(per_round=2)",
    "rounds": 2,
    "engine": "inprocess",
}
IMAGES = {  # a model with batch norm, whose counters are whole numbers
    **BASE,
    "model": "resnet20(width=2)",
    "data": {"name": "fashion-mnist", "per_class": 12, "pixels": 8, "clients": 3},
}
NEED_IMAGES = ("gradaug", "stochdepth", "fedbn")


@cache
def trained(method: str) -> tuple[PreparedRun, ServerState]:
    prepared = prepare(load({**(IMAGES if method in NEED_IMAGES else BASE), "method": method}))
    return prepared, train(prepared).state


@pytest.mark.parametrize("method", [*names(), "scaffold+fedavgm", "fedgkd(history=3)"])
def test_every_method_accepts_its_own_states(method: str) -> None:
    prepared, state = trained(method)
    assert prepared.state_problem(state) is None


def changed(group: str, change: Callable[[dict[str, Any]], Any]) -> ServerState:
    """The state of a run with one of its groups changed."""
    _, state = trained("scaffold+fedavgm")
    stage = next(iter(state.memory))
    if group == "params":
        return replace(state, params=change(dict(state.params)))
    if group == "shared":
        return replace(state, shared={"control": change(dict(state.shared["control"]))})
    velocity = change(dict(state.memory[stage]["velocity"]))
    return replace(state, memory={stage: {"velocity": velocity}})


def first(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[dict[str, Any]], Any]:
    return lambda group: {**group, next(iter(group)): change(group[next(iter(group))])}


CHANGES = {
    "another shape": first(lambda t: t[:1]),
    "not finite": first(lambda t: t * float("nan")),
}
EXACT_CHANGES = {
    "another type": first(torch.Tensor.double),
    "another name": lambda group: {"x" + name: t for name, t in group.items()},
    "one too few": lambda group: dict(list(group.items())[1:]),
    "one too many": lambda group: {**group, "more": torch.zeros(1)},
    "another order": lambda group: dict(reversed(group.items())),
    "nothing": lambda group: {},
}
CASES = [
    *((group, change) for group in ("params", "shared", "memory") for change in CHANGES),
    *((group, change) for group in ("params", "shared", "memory") for change in EXACT_CHANGES),
]


@pytest.mark.parametrize(("group", "change"), CASES)
def test_a_state_of_another_form_is_rejected(group: str, change: str) -> None:
    prepared, _ = trained("scaffold+fedavgm")
    problem = prepared.state_problem(changed(group, {**CHANGES, **EXACT_CHANGES}[change]))
    assert problem is not None and f"'{group}" in problem


def test_a_state_of_another_run_is_rejected() -> None:
    prepared, state = trained("scaffold+fedavgm")
    _, other = trained("feddyn")
    assert "no stage of this method" in str(
        prepared.state_problem(replace(state, memory=other.memory))
    )
    assert "the run has 2" in str(prepared.state_problem(replace(state, round=3)))
    assert "'memory/" in str(prepared.state_problem(replace(state, memory={})))


@pytest.mark.parametrize(
    "change",
    [
        lambda ledger: {},
        lambda ledger: {**ledger, "told": ledger["told"][:1]},
        lambda ledger: {**ledger, "up": ledger["turn"]},
        lambda ledger: {**ledger, "seal": ledger["seal"].float()},
    ],
)
def test_a_damaged_ledger_of_the_exchanges_is_rejected(change: Callable[[Any], Any]) -> None:
    prepared, state = trained("fedmix")
    memory = {"exchange": {"ledger": change(dict(state.memory["exchange"]["ledger"]))}}
    assert "ledger" in str(prepared.state_problem(replace(state, memory=memory)))
    assert "exchange" in str(prepared.state_problem(replace(state, shared={})))


def test_a_stage_may_keep_what_it_likes() -> None:
    """Scalars for each tensor, a group that begins empty, one that grows, one that comes later."""

    def init(weights: Params) -> Memory:
        return {"begins empty": {}, "norms": {n: t.norm() for n, t in weights.items()}}

    def step(memory: Memory, c: Cohort) -> tuple[Memory, Cohort]:
        seen = {**memory["begins empty"], str(c.replies[0].client): torch.ones(c.round + 1)}
        return {**memory, "begins empty": seen, f"from round {c.round}": seen}, c

    prepared, state = trained("scaffold+fedavgm")
    federation = prepared.simulation.federation
    method = federation.method
    stage = Stage("apply", "keeper", init, step)
    method = replace(method, server=(*method.server, stage))
    expected = Expected.of(replace(federation, method=method), prepared.model)
    weights = {n: torch.ones(()) for n in state.params}
    kept = {
        "begins empty": {"5": torch.ones(3), "9": torch.ones(1)},
        "norms": weights,
        "from round 1": {"5": torch.ones(2)},
    }
    mine = replace(state, memory={**state.memory, "keeper": kept})
    assert state_problem(mine, expected) is None
    odd = {**kept, "norms": {n: torch.ones(2) for n in weights}}
    mine = replace(state, memory={**state.memory, "keeper": odd})
    assert "'memory/keeper/norms" in str(state_problem(mine, expected))


def test_a_stage_that_cannot_work_with_zeros_is_no_reason_to_fail() -> None:
    def step(memory: Memory, c: Cohort) -> tuple[Memory, Cohort]:
        raise ZeroDivisionError

    prepared, state = trained("scaffold+fedavgm")
    federation = prepared.simulation.federation
    stage = Stage("apply", "fragile", lambda weights: {}, step)
    method = replace(federation.method, server=(*federation.method.server, stage))
    expected = Expected.of(replace(federation, method=method), prepared.model)
    assert state_problem(state, expected) is None
