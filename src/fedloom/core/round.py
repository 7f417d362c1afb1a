"""The training loop over rounds. It is the only one, and it does not know which method runs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from fedloom.core import exchange_in_round
from fedloom.core.chain import Chain
from fedloom.core.exchange_answers import NoValidAnswer
from fedloom.core.federation import Federation
from fedloom.core.job import build_isolated
from fedloom.core.params import nbytes
from fedloom.core.request import ClientTask
from fedloom.core.roles import Roles
from fedloom.core.round_report import (
    RoundReport,
    TooManySkipped,
    round_report,
    skipped_report,
)
from fedloom.core.server import Cohort, Memory, Reply
from fedloom.core.simulation import Simulation
from fedloom.core.state import ClientStore, ServerState
from fedloom.core.upload_spool import UploadSpool
from fedloom.core.valid_replies import ValidReplies, valid_replies


def rounds(
    simulation: Simulation,
    state: ServerState,
    store: ClientStore,
    until: int,
    model: Chain | None = None,
) -> Iterator[tuple[ServerState, RoundReport]]:
    """Run rounds from this state until `until` rounds are done; yields the state after each.

    model: the federation's model with its initial weights, if the caller has built one. Raises
    TooManySkipped if more rounds in a row are skipped than the guard allows, after yielding them.
    """
    chain = model or build_isolated(simulation.federation.build)
    checks = valid_replies(simulation.federation, simulation.guard, chain, state)
    roles = Roles.of(chain)
    allowed, skipped = simulation.guard.max_skipped, 0
    while state.round < until:
        state, report = one_round(simulation, roles, checks, state, store)
        yield state, report
        skipped = 0 if report.skipped is None else skipped + 1
        if skipped > allowed:
            raise TooManySkipped(skipped, allowed, report)


def one_round(
    simulation: Simulation,
    roles: Roles,
    checks: ValidReplies,
    state: ServerState,
    store: ClientStore,
) -> tuple[ServerState, RoundReport]:
    """Sample clients, ask them, check their replies, combine them, and store memories.

    A round whose replies or whose result cannot be used is skipped: the model and all memories stay
    as they are, and the next round begins.
    """
    started, t, federation = time.perf_counter(), state.round, simulation.federation
    sizes = checks.sizes
    chosen = simulation.sampler(t, federation.key.fold("cohort", t), sizes)
    try:
        start = exchange_in_round.start_round(federation, simulation.ask, state, store, chosen)
    except NoValidAnswer as error:
        if simulation.guard.strict:
            raise
        seconds = time.perf_counter() - started
        return replace(state, round=t + 1), skipped_report(t, error, seconds)
    # longest first, so that no worker is left with a long client at the end
    order = sorted(chosen, key=lambda c: -sizes[c])
    tasks = (ClientTask(c, store.recall(c)) for c in order)
    after = replace(state, round=t + 1, memory={**state.memory, **start.memory})
    with UploadSpool() as spool:

        def keep(reply: Reply) -> Reply:
            """What a reply holds waits where it takes no memory if it is large."""
            staged = store.stage(reply.memories)
            return replace(reply, uploads=spool.keep(reply.uploads), memories=staged)

        valid, rejected = checks.split(simulation.ask(start.sent, tasks), chosen, keep)
        left_out = {**start.rejected, **rejected}
        simulation.guard.check_strict(t, left_out)
        skipped = simulation.guard.too_few(len(valid), rejected)
        if skipped is None:
            combined = combine(federation, roles, state, start.memory, valid)
            skipped = checks.state_problem(combined)
    if skipped is None:
        after = combined
        for reply in valid:
            store.remember(reply.client, reply.memories)
    seconds = time.perf_counter() - started
    sent = nbytes(federation.sent(state.params))
    return after, round_report(
        state, sent, chosen, valid, left_out, skipped, seconds, start.traffic
    )


def combine(
    federation: Federation,
    roles: Roles,
    state: ServerState,
    memory: Mapping[str, Memory],
    valid: Sequence[Reply],
) -> ServerState:
    """The state after the stages of the method; memory: what the exchanges remember."""
    t, kept = state.round, dict(memory)
    key, population = federation.key.fold("server", t), len(federation.clients)
    cohort = Cohort(t, state.params, tuple(valid), population, roles, key, state.shared)
    for stage in federation.method.server:
        remembered, cohort = stage.step(state.memory.get(stage.name, {}), cohort)
        kept |= {stage.name: remembered} if remembered else {}
    return ServerState(t + 1, cohort.params, kept, cohort.shared)
