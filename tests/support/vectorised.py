"""Shared by the tests of the vectorised engine: federations, fallback engines, comparisons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from torch import nn

from fedloom.core.chain import Chain
from fedloom.core.federation import Federation
from fedloom.core.guard import Guard
from fedloom.core.job import Data
from fedloom.core.key import Key
from fedloom.core.method import Method, Phase
from fedloom.core.params import Params
from fedloom.core.request import Broadcast, Task
from fedloom.core.round import rounds
from fedloom.core.sampler import everyone
from fedloom.core.simulation import Simulation, init_state
from fedloom.core.solver import Sgd
from fedloom.core.state import MemoryStore, ServerState
from fedloom.engines.inprocess import InProcess
from fedloom.engines.vectorised import Vectorised
from support.clients import tiny_clients
from support.models import CLASSES, FEATURES, Build, bare
from support.simulate import initial_model

SOLVER = Sgd(lr=0.1, batch=4, epochs=2)


class NoFallback:
    """A fallback engine that must not be used."""

    def map(self, sent: Broadcast, tasks: Iterable[Task]) -> Iterator[tuple[int, Any]]:
        raise AssertionError(f"clients {[t.client for t in tasks]} were not vectorised")

    def close(self) -> None:
        raise AssertionError("closed too early")


@dataclass
class CountingEngine:
    """The in-process engine, recording the work it was asked for."""

    engine: InProcess
    works: list[str]

    def map(self, sent: Broadcast, tasks: Iterable[Task]) -> Iterator[tuple[int, Any]]:
        self.works.append(sent.work)
        return self.engine.map(sent, tasks)

    def close(self) -> None:
        self.works.append("close")


def make_federation(
    method: Method,
    clients: Sequence[Data] | None = None,
    solver: Any = SOLVER,
    build: Build = bare,
    seed: int = 0,
) -> Federation:
    return Federation(
        method, build, clients or tiny_clients(), solver, Key.root(seed), classes=CLASSES
    )


def run_rounds(
    federation: Federation, engine: Any, until: int = 3, strict: bool = False
) -> tuple[ServerState, MemoryStore, list[Any]]:
    """Run `until` rounds of all clients: the last state, the memories and the reports."""
    simulation = Simulation(federation, everyone(), engine, Guard(strict=strict))
    store = MemoryStore()
    done = list(
        rounds(simulation, init_state(simulation, initial_model(federation.build)), store, until)
    )
    return done[-1][0], store, [report for _, report in done]


def max_difference(a: Params, b: Params) -> float:
    assert a.keys() == b.keys()
    return max(float((t - b[n]).abs().max()) for n, t in a.items())


def assert_matches_inprocess(
    federation: Federation, tolerance: float = 1e-10, until: int = 3, **given: Any
) -> None:
    """A fully vectorised run has the state, memories and losses of the in-process engine."""
    exact, remembered, exact_reports = run_rounds(federation, InProcess(federation), until)
    state, store, reports = run_rounds(
        federation, Vectorised(federation, NoFallback(), **given), until
    )
    assert max_difference(exact.params, state.params) < tolerance
    for client in range(len(federation.clients)):
        ours, theirs = store.recall(client), remembered.recall(client)
        assert ours.keys() == theirs.keys()
        assert all(max_difference(ours[slot], theirs[slot]) < tolerance for slot in ours)
    assert [r.loss for r in reports] == pytest.approx([r.loss for r in exact_reports], abs=1e-10)


def linear() -> Chain:
    return Chain({"head": nn.Linear(FEATURES, CLASSES)}).double()


def method_with_term(loss: Any) -> Method:
    return Method("own", (Phase(terms=(loss,)),))
