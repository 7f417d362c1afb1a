"""The training loop over rounds. It is the only one, and it does not know which method runs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from fedloom.core import exchange
from fedloom.core.chain import Chain
from fedloom.core.client import Broadcast, ClientTask, Federation, Task
from fedloom.core.errors import RunError
from fedloom.core.evaluate import counts_problem
from fedloom.core.exchange import Notify, NoValidAnswer, RoundStart
from fedloom.core.guard import Guard, ValidReplies, norm_of, too_few
from fedloom.core.job import build_isolated
from fedloom.core.method import Method
from fedloom.core.params import Params, clone
from fedloom.core.roles import Roles
from fedloom.core.round_report import RoundReport, round_report, skipped_report
from fedloom.core.sampler import Sampler
from fedloom.core.server import Absent, Cohort, Reply
from fedloom.core.state import ClientStore, ServerState


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

        A piece of the test data belongs to no client, so it cannot be left out either.
        """
        for number, given in self.engine.map(replace(sent, timeout=self.guard.timeout), tasks):
            answer = self._checked_scores(sent, number, given)
            if isinstance(answer, Absent) and (self.guard.strict or sent.work == "evaluate"):
                raise _error_of(sent, answer)
            yield number, answer

    def _checked_scores(self, sent: Broadcast, number: int, answer: Any) -> Any:
        """The answer; Absent for scores that are malformed."""
        if sent.work not in ("evaluate", "score") or isinstance(answer, Absent):
            return answer
        problem = counts_problem(answer, self.federation.classes)
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
    shared, ledger = exchange.first_exchange(federation, simulation.ask, params, notify)
    return ServerState(0, params, {**memory, **ledger}, shared)


def resume_state(
    simulation: Simulation, state: ServerState, notify: Notify = lambda message: None
) -> ServerState:
    """The state of a stopped run; its exchanges are repeated if clients' data have changed."""
    return exchange.repeat_if_data_changed(simulation.federation, simulation.ask, state, notify)


class TooManySkipped(RunError):
    """More rounds in a row were skipped than guard.max_skipped. client: one to look at, if any."""

    def __init__(self, skipped: int, allowed: int, report: RoundReport) -> None:
        self.client = next(iter(report.rejected), None)
        rounds = "a round was" if skipped == 1 else f"{skipped} rounds in a row were"
        super().__init__(
            f"{rounds} skipped, and guard.max_skipped={allowed}; "
            f"round {report.round + 1}: {report.skipped}"
        )


@dataclass(frozen=True)
class RoundInvariants:
    """What stays the same in every round: the roles of the model's tensors, and valid replies."""

    roles: Roles
    valid: ValidReplies


def rounds(
    simulation: Simulation,
    state: ServerState,
    store: ClientStore,
    until: int,
    model: Chain | None = None,
) -> Iterator[tuple[ServerState, RoundReport]]:
    """Run rounds from this state until `until` rounds are done; yields the state after each.

    model: the federation's model with its initial weights, if the caller has built one. Raises
    TooManySkipped, after the last of them was yielded, if the guard does not allow so many.
    """
    chain = model or build_isolated(simulation.federation.build)
    invariants = round_invariants(simulation, chain, state)
    allowed, skipped = simulation.guard.max_skipped, 0
    while state.round < until:
        state, report = one_round(simulation, invariants, state, store)
        yield state, report
        skipped = 0 if report.skipped is None else skipped + 1
        if skipped > allowed:
            raise TooManySkipped(skipped, allowed, report)


def round_invariants(simulation: Simulation, chain: Chain, state: ServerState) -> RoundInvariants:
    """What can be known of every round. chain: the model with its initial weights."""
    method, roles = simulation.federation.method, Roles.of(chain)
    scale = max(1.0, norm_of(chain.state_dict(), roles.weights))
    private = method.private(chain)
    named = {slot for phase in method.phases for slot in (phase.slot, *phase.makes)}
    slots = dict.fromkeys(named - {"model"}, state.params)
    if private:
        slots["private"] = {n: t for n, t in state.params.items() if n in private}
    valid = ValidReplies(
        uploads=expected_uploads(method, chain, state),
        slots=slots,
        sizes=[len(c) for c in simulation.federation.clients],
        weights=roles.weights,
        max_norm=simulation.guard.max_norm * scale,
    )
    return RoundInvariants(roles, valid)


def one_round(
    simulation: Simulation, invariants: RoundInvariants, state: ServerState, store: ClientStore
) -> tuple[ServerState, RoundReport]:
    """Sample clients, ask them, check their replies, combine them, and store memories.

    A round whose replies or whose result cannot be used is skipped: the model and all memories stay
    as they are, and the next round begins.
    """
    started, t, federation = time.perf_counter(), state.round, simulation.federation
    sizes = invariants.valid.sizes
    chosen = simulation.sampler(t, federation.key.fold("cohort", t), sizes)
    try:
        start = exchange.start_round(federation, simulation.ask, state, store, chosen)
    except NoValidAnswer as error:
        if simulation.guard.strict:
            raise
        seconds = time.perf_counter() - started
        return replace(state, round=t + 1), skipped_report(t, error, seconds)
    # longest first, so that no worker is left with a long client at the end
    order = sorted(chosen, key=lambda c: -sizes[c])
    tasks = (ClientTask(c, store.recall(c)) for c in order)
    valid, rejected = invariants.valid.split(simulation.ask(start.sent, tasks), chosen)
    rejected = {**start.rejected, **rejected}
    if rejected and simulation.guard.strict:
        client, why = next(iter(rejected.items()))
        raise RunError(f"round {t + 1}: the reply of client {client} is not valid: {why}")
    after, skipped = _combined(simulation, invariants, state, start, valid, rejected)
    if skipped is None:
        for reply in valid:
            store.remember(reply.client, reply.memories)
    seconds = time.perf_counter() - started
    return after, round_report(state, chosen, valid, rejected, skipped, seconds, start.traffic)


def _combined(
    simulation: Simulation,
    invariants: RoundInvariants,
    state: ServerState,
    start: RoundStart,
    valid: list[Reply],
    rejected: dict[int, str],
) -> tuple[ServerState, str | None]:
    """The state after the round, and why the round is skipped, if it is."""
    federation, t = simulation.federation, state.round
    unchanged = replace(state, round=t + 1, memory={**state.memory, **start.memory})
    if len(valid) < simulation.guard.min_replies:
        return unchanged, too_few(len(valid), simulation.guard.min_replies, rejected)
    key, memory = federation.key.fold("server", t), dict(start.memory)
    population, roles = len(invariants.valid.sizes), invariants.roles
    cohort = Cohort(t, state.params, tuple(valid), population, roles, key, state.shared)
    for stage in federation.method.server:
        kept, cohort = stage.step(state.memory.get(stage.name, {}), cohort)
        memory |= {stage.name: kept} if kept else {}
    after = ServerState(t + 1, cohort.params, memory, cohort.shared)
    problem = invariants.valid.state_problem(after)
    return (after, None) if problem is None else (unchanged, problem)


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
