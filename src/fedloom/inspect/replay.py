"""Replays clients: no run stores their models, so they train once more from the run's last weights.

They use the engine and the keys of the run. The round is the next one. For a finished run it is
the last one again, so that the learning rate is one that the run has used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from fedloom.core.errors import UserError
from fedloom.core.exchange_in_round import ask_every_round, training_broadcast
from fedloom.core.key import Key
from fedloom.core.params import Params, add
from fedloom.core.request import ClientTask
from fedloom.core.sampler import uniform
from fedloom.core.server import Reply
from fedloom.core.valid_replies import valid_replies
from fedloom.data.client import Batch, ClientData
from fedloom.experiment.prepare import PreparedRun
from fedloom.experiment.reopen import ReopenedRun

MIN_CLIENTS = 2  # since clients are compared with each other


@dataclass(frozen=True)
class ReplayedClient:
    """A client after its round. update: what it sent of the model; model: all its weights."""

    client: int
    samples: int
    update: Params
    model: Params


def choose_clients(run: ReopenedRun, count: int | None, key: Key) -> list[int]:
    """The clients that the run samples in this round, or `count` of all, drawn from the key."""
    sizes = run.prepared.clients.sizes.tolist()
    if count is None:
        simulation = run.prepared.simulation
        cohort_key = simulation.federation.key.fold("cohort", run.round)
        return simulation.sampler(run.round, cohort_key, sizes)
    if count > len(sizes):
        raise UserError(
            f"--clients {count} is more than the {len(sizes)} clients of the run; lower it"
        )
    return uniform(count)(run.round, key, sizes)


def replay(
    run: ReopenedRun, clients: list[int], keep_going: Callable[[], bool]
) -> list[ReplayedClient]:
    """These clients after their round; nothing is stored.

    keep_going is asked before each client and ends the replay early, but not before two clients.
    Raises UserError if fewer than two clients sent a valid update.
    """
    simulation, state = run.prepared.simulation, replace(run.state, round=run.round)
    answers = ask_every_round(simulation.federation, simulation.ask, state, run.store, clients)
    broadcast = training_broadcast(state, answers)
    replies: list[tuple[int, Any]] = []
    for number, client in enumerate(clients):
        if not keep_going() and number >= MIN_CLIENTS:
            break
        task = ClientTask(client, run.store.recall(client))
        replies += simulation.ask(broadcast, [task])
    checks = valid_replies(simulation.federation, simulation.guard, run.prepared.model, state)
    valid, rejected = checks.split(replies, [client for client, _ in replies])
    if len(valid) < MIN_CLIENTS:
        reasons = "; ".join(f"client {c}: {reason}" for c, reason in rejected.items())
        raise UserError(
            f"clients are compared with each other, but only {len(valid)} sent a valid update "
            f"({reasons or 'the round has one client'}); raise --clients"
        )
    return [_replayed(state.params, reply) for reply in valid]


def _replayed(received: Params, reply: Reply) -> ReplayedClient:
    update = reply.uploads["model"]
    model = {**add(received, update), **reply.memories.get("private", {})}
    return ReplayedClient(reply.client, reply.samples, update, model)


def training_samples(prepared: PreparedRun, count: int, key: Key) -> Batch:
    """`count` samples of all clients' training data, drawn from the key, without augmentation."""
    clients = prepared.clients
    order = torch.randperm(len(clients.rows), generator=key.generator())[:count]
    return ClientData(clients.split, clients.rows, clients.normalise).batch(order, train=False)
