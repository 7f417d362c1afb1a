"""The training loop over rounds. It is the only one, and it does not know which method runs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from fedloom.core import exchange
from fedloom.core.chain import Chain
from fedloom.core.client import Broadcast, ClientTask, Federation, Task
from fedloom.core.exchange import Notify
from fedloom.core.guard import Guard
from fedloom.core.job import build_isolated
from fedloom.core.method import Method
from fedloom.core.params import Params, clone
from fedloom.core.roles import Roles
from fedloom.core.round_report import RoundReport, round_report
from fedloom.core.sampler import Sampler
from fedloom.core.server import Cohort
from fedloom.core.state import ClientStore, ServerState


class Engine(Protocol):
    """Where clients are simulated. Yields each task's number with its answer, in any order."""

    def map(self, sent: Broadcast, tasks: Iterable[Task]) -> Iterator[tuple[int, Any]]: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Simulation:
    """A federation with a server: client sampling, checks of replies, and the engine."""

    federation: Federation
    sampler: Sampler
    engine: Engine
    guard: Guard = field(default_factory=Guard)


def init_state(
    simulation: Simulation, model: Chain, notify: Notify = lambda message: None
) -> ServerState:
    """The state before round 0: initial weights, initial memories, and the pooled exchanges.

    Raises UserError if the method does not fit the model.
    """
    federation = simulation.federation
    method, roles = federation.method, Roles.of(model)
    method.check(model)
    params = clone(model.state_dict())
    weights = {n: t for n, t in params.items() if n in roles.weights}
    memory = {stage.name: kept for stage in method.server if (kept := stage.init(weights))}
    shared, ledger = exchange.first_exchange(federation, simulation.engine.map, params, notify)
    return ServerState(0, params, {**memory, **ledger}, shared)


def resume_state(
    simulation: Simulation, state: ServerState, notify: Notify = lambda message: None
) -> ServerState:
    """The state of a stopped run; its exchanges are repeated if clients' data have changed."""
    return exchange.repeat_if_data_changed(
        simulation.federation, simulation.engine.map, state, notify
    )


@dataclass(frozen=True)
class RoundInvariants:
    """What stays the same in every round.

    sizes: samples per client. roles: of the model's tensors. like: what uploads must look like.
    """

    sizes: Sequence[int]
    roles: Roles
    like: Mapping[str, Params]


def rounds(
    simulation: Simulation,
    state: ServerState,
    store: ClientStore,
    until: int,
    model: Chain | None = None,
) -> Iterator[tuple[ServerState, RoundReport]]:
    """Run rounds from this state until `until` rounds are done; yields the state after each.

    model: the federation's model, if the caller has built one; only its structure is used.
    """
    chain = model or build_isolated(simulation.federation.build)
    invariants = RoundInvariants(
        [len(c) for c in simulation.federation.clients],
        Roles.of(chain),
        expected_uploads(simulation.federation.method, chain, state),
    )
    while state.round < until:
        state, report = one_round(simulation, invariants, state, store)
        yield state, report


def one_round(
    simulation: Simulation, invariants: RoundInvariants, state: ServerState, store: ClientStore
) -> tuple[ServerState, RoundReport]:
    """Sample clients, ask them, check their replies, combine them, and store memories."""
    started, t, federation = time.perf_counter(), state.round, simulation.federation
    engine, sizes = simulation.engine, invariants.sizes
    chosen = simulation.sampler(t, federation.key.fold("cohort", t), sizes)
    start = exchange.start_round(federation, engine.map, state, store, chosen)
    # longest first, so that no worker is left with a long client at the end
    order = sorted(chosen, key=lambda c: -sizes[c])
    tasks = (ClientTask(c, store.recall(c)) for c in order)
    replies = [reply for _, reply in engine.map(start.sent, tasks)]
    valid, rejected = simulation.guard.validate(replies, invariants.like, chosen)
    key, memory = federation.key.fold("server", t), dict(start.memory)
    cohort = Cohort(t, state.params, tuple(valid), len(sizes), invariants.roles, key, state.shared)
    for stage in federation.method.server:
        kept, cohort = stage.step(state.memory.get(stage.name, {}), cohort)
        memory |= {stage.name: kept} if kept else {}
    for reply in valid:
        store.remember(reply.client, reply.memories)
    after = ServerState(t + 1, cohort.params, memory, cohort.shared)
    seconds, left_out = time.perf_counter() - started, {**start.rejected, **rejected}
    return after, round_report(state, chosen, valid, left_out, seconds, start.traffic)


def expected_uploads(method: Method, chain: Chain, state: ServerState) -> dict[str, Params]:
    """Tensors of the names, shapes and types that uploads must have.

    "model" has all tensors that are neither private nor frozen; the other uploads have the weights
    among them.
    """
    roles = Roles.of(chain)
    kept = method.private(chain) | roles.frozen
    shown = {n: t for n, t in state.params.items() if n not in kept}
    other = {n: t for n, t in shown.items() if n in roles.weights}
    return {"model": shown, **{name: other for name in method.sends}}
