"""Clients of a run made again: no run stores their models, so they train once more from the weights the run ended with.

They are played through the engine and with the keys of the run. The round is the next one, or for a finished run its last one
once more, so that the learning rate is one that the run has used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from fedloom.core.client import ClientTask
from fedloom.core.errors import UserError
from fedloom.core.exchange import ask_every_round, training_broadcast
from fedloom.core.key import Key
from fedloom.core.params import Params, add
from fedloom.core.round import expected_uploads
from fedloom.core.sampler import uniform
from fedloom.core.server import Reply
from fedloom.data.client import Batch, ClientData
from fedloom.experiment.prepare import PreparedRun
from fedloom.experiment.reopen import ReopenedRun


@dataclass(frozen=True)
class Trained:
    """A client after its round: what it sent of the model, and the whole model as the client has it."""

    client: int
    samples: int
    update: Params
    model: Params


def cohort(run: ReopenedRun, count: int | None, key: Key) -> list[int]:
    """The round's own clients, or so many of all, drawn from the key."""
    sizes, simulation = [len(c) for c in run.prepared.clients], run.prepared.simulation
    if count is None:
        return simulation.sampler(
            run.round, simulation.federation.key.fold("cohort", run.round), sizes
        )
    if count > len(sizes):
        raise UserError(
            f"--clients {count} is more than the {len(sizes)} clients of the run; lower it"
        )
    return uniform(count)(run.round, key, sizes)


def replay(run: ReopenedRun, clients: list[int], go: Callable[[], bool]) -> list[Trained]:
    """These clients after their round, as far as there is time; two at least, since they are compared. Nothing is kept."""
    simulation, state, replies = run.prepared.simulation, replace(run.state, round=run.round), []
    sent = training_broadcast(
        state,
        ask_every_round(simulation.federation, simulation.engine.map, state, run.store, clients),
    )
    for number, client in enumerate(clients):
        if not go() and number >= 2:
            break
        replies += [
            reply
            for _, reply in simulation.engine.map(
                sent, [ClientTask(client, run.store.recall(client))]
            )
        ]
    sound, refused = simulation.guard.validate(
        replies, expected_uploads(simulation.federation.method, run.prepared.model, state), clients
    )
    if len(sound) < 2:
        why = (
            "; ".join(f"client {c}: {said}" for c, said in refused.items())
            or "the round has one client"
        )
        raise UserError(
            f"clients are compared with each other, and there are {len(sound)} of them ({why}); raise --clients"
        )
    return [_trained(state.params, reply) for reply in sound]


def _trained(received: Params, reply: Reply) -> Trained:
    update = reply.uploads["model"]
    return Trained(
        reply.client,
        reply.samples,
        update,
        {**add(received, update), **reply.memories.get("private", {})},
    )


def training_samples(prepared: PreparedRun, count: int, key: Key) -> Batch:
    """So many samples of all clients' training data, drawn from the key, not augmented."""
    clients = prepared.clients
    order = torch.randperm(len(clients.rows), generator=key.generator())[:count]
    return ClientData(clients.split, clients.rows, clients.normalise).batch(order, train=False)
