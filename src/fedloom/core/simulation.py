"""A federation with a server, and the questions that the server asks its clients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from fedloom.core.chain import Chain
from fedloom.core.errors import RunError
from fedloom.core.evaluate import evaluation_problem
from fedloom.core.exchange_before_run import Notify, first_exchange, repeat_if_data_changed
from fedloom.core.federation import Federation
from fedloom.core.frozen_base import BASE
from fedloom.core.guard import Guard
from fedloom.core.params import clone
from fedloom.core.request import Broadcast, Task
from fedloom.core.roles import Roles
from fedloom.core.sampler import Sampler
from fedloom.core.server import Absent
from fedloom.core.state import ServerState


class Engine(Protocol):
    """Where clients are simulated.

    Yields each task's number with its answer, in any order. The answer of a client that fails or
    takes longer than `sent.timeout` is an Absent with the reason; an engine raises only if it
    cannot go on itself.
    """

    def map(self, sent: Broadcast, tasks: Iterable[Task]) -> Iterator[tuple[int, Any]]: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Simulation:
    """A federation with a server: client sampling, checks of replies, and the engine."""

    federation: Federation
    sampler: Sampler
    engine: Engine
    guard: Guard = field(default_factory=Guard)

    def answer(self, sent: Broadcast, task: Task) -> Any:
        """The answer to one task; raises if there is none."""
        ((_, answer),) = self.ask(sent, [task])
        if isinstance(answer, Absent):
            raise _error_of(sent, answer)
        return answer

    def ask(self, sent: Broadcast, tasks: Iterable[Task]) -> Iterator[tuple[int, Any]]:
        """The answers, or Absent, by number; raises for an absent client if the guard is strict.

        A piece of test data that belongs to no client cannot be left out either.
        """
        needs_all = self.guard.strict or (
            sent.work == "evaluate" and self.federation.own_test is None
        )
        params, base = self.federation.sent(sent.params), self.federation.base
        shared = {**sent.shared, BASE: base} if base else sent.shared
        sent = replace(sent, params=params, shared=shared, timeout=self.guard.timeout)
        for number, given in self.engine.map(sent, tasks):
            answer = self._checked_scores(sent, number, given)
            if isinstance(answer, Absent) and needs_all:
                raise _error_of(sent, answer)
            yield number, answer
            del given, answer  # or they would be in memory while the next client is running

    def _checked_scores(self, sent: Broadcast, number: int, answer: Any) -> Any:
        """The answer; Absent for scores that are malformed."""
        if sent.work not in ("evaluate", "score") or isinstance(answer, Absent):
            return answer
        federation, scored = self.federation, sent.work == "score"
        problem = evaluation_problem(
            answer,
            federation.task,
            federation.classes,
            metrics=list(federation.metrics) if scored else [],
            predicted=bool(federation.metrics) and not scored,
        )
        return answer if problem is None else Absent(number, problem)


def _error_of(sent: Broadcast, absent: Absent) -> Exception:
    """The error for an answer that is missing and cannot be left out."""
    if absent.error is not None:
        return absent.error
    who = "piece" if sent.work == "evaluate" else "client"
    what = f"{who} {absent.client} in round {sent.round + 1} ({sent.work})"
    return RunError(f"{what}: {absent.reason}")


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
    shared, ledger = first_exchange(federation, simulation.ask, params, notify)
    return ServerState(0, params, {**memory, **ledger}, shared)


def resume_state(
    simulation: Simulation, state: ServerState, notify: Notify = lambda message: None
) -> ServerState:
    """The state of a stopped run; its exchanges are repeated if clients' data have changed."""
    return repeat_if_data_changed(simulation.federation, simulation.ask, state, notify)
