"""The vectorised engine against the exact one: unequal clients, every solver, any lane count."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.core.job import Job
from fedloom.core.method import Extra, Method, Outcome, Phase
from fedloom.core.optimisers import SGDRule
from fedloom.core.params import Params
from fedloom.core.request import Broadcast, ClientTask
from fedloom.core.select import blocks
from fedloom.core.solver import Schedule, Sgd
from fedloom.core.spec import parse
from fedloom.core.step import Step
from fedloom.engines.inprocess import InProcess
from fedloom.engines.vectorised import Vectorised
from fedloom.methods.fedavg import fedavg
from fedloom.methods.registry import build, names
from support.clients import tiny_clients
from support.models import CLASSES, FEATURES, bare
from support.simulate import initial_model
from support.vectorised import (
    SOLVER,
    NoFallback,
    assert_matches_inprocess,
    linear,
    make_federation,
    method_with_term,
    run_rounds,
)

PLAIN = ("fedavg", "fedprox", "fedavgm", "fedadam", "fedyogi", "feddyn", "scaffold")
JOINED = ("fedprox+fedavgm", "scaffold+fedadam", "fedprox+feddyn")


@pytest.mark.parametrize("method", [*names(), *JOINED])
def test_every_method_matches_or_is_rejected(method: str) -> None:
    federation = make_federation(build(parse(method)))
    if (why_not := Vectorised(federation, NoFallback()).why_not) is None:
        assert_matches_inprocess(federation)
    else:
        assert method not in (*PLAIN, *JOINED), why_not


SOLVERS = {
    "momentum": replace(SOLVER, rule=SGDRule(momentum=0.9)),
    "nesterov": replace(SOLVER, rule=SGDRule(momentum=0.9, nesterov=True)),
    "weight decay": replace(SOLVER, rule=SGDRule(momentum=0.5, weight_decay=0.1)),
    "clip": replace(SOLVER, clip=0.3),
    "clip none": replace(SOLVER, clip=1e6),
    "steps": replace(SOLVER, steps=7),
    "one step": replace(SOLVER, steps=1),
    "drop last": replace(SOLVER, drop_last=True, batch=6),
    "whole": replace(SOLVER, batch=1000),
    "single": replace(SOLVER, batch=1, epochs=1),
    "schedule": replace(SOLVER, schedule=Schedule("exponential", 0.5)),
}


@pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)
def test_every_solver_option(solver: Sgd) -> None:
    assert_matches_inprocess(make_federation(build(parse("fedprox+feddyn")), solver=solver))


def test_gradients_are_clipped_lane_by_lane() -> None:
    """One client's gradient is a hundred times the other's; the bound affects only one of them."""
    calm, wild = tiny_clients((8, 8))
    clients = [calm, replace(wild, x=100 * wild.x)]
    engine = Vectorised(
        make_federation(fedavg(), clients, Sgd(lr=0.1, batch=8, clip=2.0), linear), NoFallback()
    )
    sent = Broadcast("train", 0, initial_model(linear).state_dict())
    length = {
        c: float(torch.cat([t.flatten() for t in r.uploads["model"].values()]).norm())
        for c, r in engine.map(sent, [ClientTask(0), ClientTask(1)])
    }
    assert length[1] == pytest.approx(0.1 * 2.0, abs=1e-6)
    assert length[0] < 0.19


@settings(max_examples=12, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 13), min_size=1, max_size=7),
    batch=st.integers(1, 8),
    epochs=st.integers(1, 3),
    width=st.integers(1, 8),
)
def test_any_client_sizes_batches_and_numbers_of_lanes(
    sizes: list[int], batch: int, epochs: int, width: int
) -> None:
    solver = Sgd(lr=0.1, batch=batch, epochs=epochs, rule=SGDRule(momentum=0.9))
    assert_matches_inprocess(
        make_federation(build(parse("scaffold")), tiny_clients(tuple(sizes)), solver),
        until=2,
        lanes=width,
    )


def test_clients_of_one_sample() -> None:
    assert_matches_inprocess(make_federation(build(parse("fedprox")), tiny_clients((1, 1, 1))))
    assert_matches_inprocess(make_federation(build(parse("fedprox")), tiny_clients((1, 30))))


def test_a_client_without_a_batch_keeps_its_weights() -> None:
    federation = make_federation(
        build(parse("scaffold")), tiny_clients((3, 9, 2)), replace(SOLVER, drop_last=True)
    )
    sent = Broadcast("train", 0, initial_model(bare).state_dict())
    exact = dict(InProcess(federation).map(sent, [ClientTask(c) for c in range(3)]))
    for asked in ([0, 1, 2], [0, 2]):
        replies = dict(
            Vectorised(federation, NoFallback()).map(sent, [ClientTask(c) for c in asked])
        )
        assert sorted(replies) == asked
        for c, reply in replies.items():
            assert (reply.samples, reply.seen, reply.steps) == (
                exact[c].samples,
                exact[c].seen,
                exact[c].steps,
            )
            assert any(t.any() for t in reply.uploads["model"].values()) == (c == 1)
            assert reply.loss == pytest.approx(exact[c].loss)


def test_only_trainable_tensors_change() -> None:
    method = Method("head only", (Phase(trains=blocks("head")),))
    assert_matches_inprocess(make_federation(method))
    engine = Vectorised(make_federation(method), NoFallback())
    (_, reply), *_ = engine.map(
        Broadcast("train", 0, initial_model(bare).state_dict()), [ClientTask(0)]
    )
    assert {n for n, t in reply.uploads["model"].items() if t.any()} == {"head.weight", "head.bias"}


class Constant(nn.Module):
    """A layer with a buffer that is never changed, and a counter."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.full((5,), 0.5))
        self.register_buffer("version", torch.tensor(3))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


def with_buffers() -> Chain:
    return Chain(
        {"stem": nn.Linear(FEATURES, 5), "still": Constant(), "head": nn.Linear(5, CLASSES)}
    ).double()


def test_constant_buffers_have_a_zero_update() -> None:
    assert_matches_inprocess(make_federation(fedavg(), build=with_buffers))
    state, _, _ = run_rounds(
        make_federation(fedavg(), build=with_buffers),
        Vectorised(make_federation(fedavg(), build=with_buffers), NoFallback()),
    )
    assert state.params["still.version"] == 3


def test_a_custom_loss_on_weights_is_vectorised() -> None:
    """A group norm of every tensor: not a sum over weights, so that mixed-up lanes would show."""
    assert_matches_inprocess(
        make_federation(
            method_with_term(
                lambda step: 0.01 * torch.stack([p.norm() for p in step.params.values()]).sum()
            )
        )
    )


def test_a_loss_sees_the_number_of_its_step() -> None:
    assert_matches_inprocess(
        make_federation(
            method_with_term(lambda step: 0.01 * step.number * step.vector.square().sum())
        )
    )


def test_custom_memories_work_through_once() -> None:
    def towards(job: Job) -> Params:
        return job.memory("last", lambda weights: {n: t + 1 for n, t in weights.items()})

    def remember(outcome: Outcome) -> Extra:
        return Extra(memories={"last": {n: t for n, t in outcome.weights["model"].items()}})

    def proximal(step: Step) -> Tensor:
        return 0.1 * (step.vector - step.vector_of(towards)).square().sum()

    assert_matches_inprocess(
        make_federation(Method("own", (Phase(terms=(proximal,)),), (remember,))), lanes=3
    )
