"""The round. There is one loop over rounds, and no line in it knows which method runs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from fedloom.core.chain import Chain
from fedloom.core.client import Broadcast, Federation, Task
from fedloom.core.guard import Guard
from fedloom.core.params import Params, nbytes
from fedloom.core.roles import Roles
from fedloom.core.sampler import Sampler
from fedloom.core.select import nothing
from fedloom.core.server import Cohort, Memory, Reply
from fedloom.core.state import ClientStore, ServerState


class Engine(Protocol):
    """Where clients are played. Yields each client's number with its answer, in any order."""

    def map(self, sent: Broadcast, tasks: Iterable[Task]) -> Iterator[tuple[int, Any]]: ...


@dataclass(frozen=True)
class Report:
    """What there is to say of a round."""

    round: int
    clients: tuple[int, ...]
    refused: dict[int, str]
    loss: float
    steps: int
    bytes_up: int
    bytes_down: int
    seconds: float


@dataclass(frozen=True)
class Loom:
    """A federation with a server: who is asked each round, what is trusted, and where the work is done."""

    federation: Federation
    sampler: Sampler
    engine: Engine
    guard: Guard = field(default_factory=Guard)


def begin(loom: Loom, model: Chain) -> ServerState:
    """The state before round 0: the first weights, empty memories, and the answers to the method's questions."""
    federation = loom.federation
    method, roles = federation.method, Roles.of(model)
    method.check(model)
    params = {n: t.detach().clone() for n, t in model.state_dict().items()}
    weights = {n: t for n, t in params.items() if n in roles.weights}
    memory = {stage.name: stage.init(weights) for stage in method.server}
    return ServerState(0, params, {n: m for n, m in memory.items() if m}, _ask_all(loom, params))


def _ask_all(loom: Loom, params: Params) -> dict[str, Params]:
    """The prologue: every client is asked once, and the server pools the answers in client order."""
    federation = loom.federation
    if not federation.method.prologue:
        return {}
    tasks = [Task(c) for c in range(len(federation.clients))]
    answers = sorted(loom.engine.map(Broadcast("exchange", 0, params), tasks), key=lambda a: a[0])
    key = federation.key.fold("pool")
    return {e.name: e.server([said[e.name] for _, said in answers], key.fold(e.name)) for e in federation.method.prologue}


def rounds(loom: Loom, state: ServerState, store: ClientStore, until: int) -> Iterator[tuple[ServerState, Report]]:
    """Round after round, from where the state stands."""
    sizes = [len(c) for c in loom.federation.clients]
    roles = Roles.of(loom.federation.build())
    while state.round < until:
        state, report = one_round(loom, state, store, sizes, roles)
        yield state, report


def one_round(loom: Loom, state: ServerState, store: ClientStore, sizes: Sequence[int], roles: Roles) -> tuple[ServerState, Report]:
    """Choose, ask, sift, combine, remember."""
    started, t, method = time.perf_counter(), state.round, loom.federation.method
    chosen = loom.sampler(t, loom.federation.key.fold("cohort", t), sizes)
    sent = Broadcast("train", t, state.params, state.shared)
    replies = [reply for _, reply in loom.engine.map(sent, (Task(c, store.recall(c)) for c in chosen))]
    sound, refused = loom.guard.sift(replies, expected(loom.federation, state, roles))
    cohort = Cohort(t, state.params, tuple(sound), len(sizes), roles, loom.federation.key.fold("server", t), state.shared)
    memory: dict[str, Memory] = {}
    for stage in method.server:
        kept, cohort = stage.step(state.memory.get(stage.name, {}), cohort)
        memory |= {stage.name: kept} if kept else {}
    for reply in sound:
        store.remember(reply.client, reply.mine)
    after = ServerState(t + 1, cohort.params, memory, cohort.shared)
    return after, _report(state, chosen, sound, refused, time.perf_counter() - started)


def expected(federation: Federation, state: ServerState, roles: Roles) -> dict[str, Params]:
    """What the uploads must look like: all tensors that are not private; beside the model, the trained weights."""
    method = federation.method
    private = method.private(federation.build()) if method.private is not nothing else frozenset()
    shown = {n: t for n, t in state.params.items() if n not in private}
    return {"model": shown} | {word: {n: t for n, t in shown.items() if n in roles.weights} for word in method.sends}


def _report(state: ServerState, chosen: list[int], sound: list[Reply], refused: dict[int, str], seconds: float) -> Report:
    down = nbytes(state.params) + sum(nbytes(p) for p in state.shared.values())
    return Report(
        round=state.round,
        clients=tuple(chosen),
        refused=refused,
        loss=sum(r.loss * r.samples for r in sound) / sum(r.samples for r in sound),
        steps=sum(r.steps for r in sound),
        bytes_up=sum(nbytes(p) for r in sound for p in r.uploads.values()),
        bytes_down=down * len(chosen),
        seconds=seconds,
    )
