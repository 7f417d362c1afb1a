"""The round. There is one loop over rounds, and no line in it knows which method runs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from fedloom.core import exchange
from fedloom.core.chain import Chain
from fedloom.core.client import Broadcast, Federation, Task
from fedloom.core.exchange import Tell
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
    """Where clients are played. Yields each client's number with its answer, in any order."""

    def map(self, sent: Broadcast, tasks: Iterable[Task]) -> Iterator[tuple[int, Any]]: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Simulation:
    """A federation with a server: who is asked each round, what is trusted, and where the work is done."""

    federation: Federation
    sampler: Sampler
    engine: Engine
    guard: Guard = field(default_factory=Guard)


def init_state(
    simulation: Simulation, model: Chain, tell: Tell = lambda warning: None
) -> ServerState:
    """The state before round 0: the first weights, empty memories, and the answers to the method's questions."""
    federation = simulation.federation
    method, roles = federation.method, Roles.of(model)
    method.check(model)
    params = clone(model.state_dict())
    weights = {n: t for n, t in params.items() if n in roles.weights}
    memory = {stage.name: kept for stage in method.server if (kept := stage.init(weights))}
    shared, ledger = exchange.first_exchange(federation, simulation.engine.map, params, tell)
    return ServerState(0, params, {**memory, **ledger}, shared)


def resume_state(
    simulation: Simulation, state: ServerState, tell: Tell = lambda warning: None
) -> ServerState:
    """The state of a run that stopped, with the method's questions asked again if clients have other data now."""
    return exchange.repeat_if_data_changed(
        simulation.federation, simulation.engine.map, state, tell
    )


@dataclass(frozen=True)
class RoundInvariants:
    """What is the same in every round: the clients' sizes, the roles of the tensors, and what a reply must look like."""

    sizes: Sequence[int]
    roles: Roles
    like: Mapping[str, Params]


def rounds(
    simulation: Simulation, state: ServerState, store: ClientStore, until: int
) -> Iterator[tuple[ServerState, RoundReport]]:
    """Round after round, from where the state stands."""
    chain = build_isolated(simulation.federation.build)
    known = RoundInvariants(
        [len(c) for c in simulation.federation.clients],
        Roles.of(chain),
        expected_uploads(simulation.federation.method, chain, state),
    )
    while state.round < until:
        state, report = one_round(simulation, known, state, store)
        yield state, report


def one_round(
    simulation: Simulation, known: RoundInvariants, state: ServerState, store: ClientStore
) -> tuple[ServerState, RoundReport]:
    """Choose, ask, sift, combine, remember."""
    started, t, method = time.perf_counter(), state.round, simulation.federation.method
    chosen = simulation.sampler(t, simulation.federation.key.fold("cohort", t), known.sizes)
    news = exchange.ask_every_round(
        simulation.federation, simulation.engine.map, state, store, chosen
    )
    sent = exchange.training_broadcast(state, news)
    longest_first = sorted(
        chosen, key=lambda c: -known.sizes[c]
    )  # so that no worker is left with a long client at the end
    replies = [
        reply
        for _, reply in simulation.engine.map(
            sent, (Task(c, store.recall(c)) for c in longest_first)
        )
    ]
    sound, refused = simulation.guard.validate(replies, known.like, chosen)
    key, population = simulation.federation.key.fold("server", t), len(known.sizes)
    cohort = Cohort(t, state.params, tuple(sound), population, known.roles, key, state.shared)
    memory, traffic = exchange.count_traffic(simulation.federation, state, chosen)
    for stage in method.server:
        kept, cohort = stage.step(state.memory.get(stage.name, {}), cohort)
        memory |= {stage.name: kept} if kept else {}
    for reply in sound:
        store.remember(reply.client, reply.memories)
    after = ServerState(t + 1, cohort.params, memory, cohort.shared)
    seconds, left_out = time.perf_counter() - started, {**news.refused, **refused}
    return after, round_report(state, chosen, sound, left_out, seconds, traffic.plus(news.traffic))


def expected_uploads(method: Method, chain: Chain, state: ServerState) -> dict[str, Params]:
    """What the uploads must look like: all tensors that are not private; beside the model, the weights among them."""
    private, weights = method.private(chain), Roles.of(chain).weights
    shown = {n: t for n, t in state.params.items() if n not in private}
    return {"model": shown} | {
        word: {n: t for n, t in shown.items() if n in weights} for word in method.sends
    }
