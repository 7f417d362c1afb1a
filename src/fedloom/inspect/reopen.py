"""Clients of a run made again: no run stores their models, so they train once more from the weights the run ended with.

They are played through the engine and with the keys of the run. The round is the next one, or for a finished run its last one
once more, so that the learning rate is one that the run has used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from fedloom.core.client import ClientTask
from fedloom.core.errors import UserError
from fedloom.core.exchange import ask_every_round, training_broadcast
from fedloom.core.key import Key
from fedloom.core.params import Params, add
from fedloom.core.round import expected_uploads
from fedloom.core.sampler import uniform
from fedloom.core.server import Reply
from fedloom.core.state import ClientStore, ServerState
from fedloom.data.client import Batch, ClientData
from fedloom.experiment.build import PreparedRun, prepare
from fedloom.experiment.parts import resolve_device
from fedloom.runs.folder import CONFIG, RunFolder
from fedloom.settings.config import load
from fedloom.settings.overrides import read


@dataclass(frozen=True)
class Reopened:
    """A run as its last sound checkpoint has it."""

    prepared: PreparedRun
    state: ServerState
    store: ClientStore

    @property
    def round(self) -> int:
        """The round that is replayed, counted from 0."""
        return min(self.state.round, self.prepared.config.rounds - 1)


@dataclass(frozen=True)
class Trained:
    """A client after its round: what it sent of the model, and the whole model as the client has it."""

    client: int
    samples: int
    update: Params
    model: Params


@contextmanager
def reopened(path: Path, tell: Callable[[str], None]) -> Iterator[Reopened]:
    """A run to look at; it may go on elsewhere meanwhile. tell hears what the user should know."""
    with RunFolder.read_only(path) as look:
        look.check_config()
    settings = load({**read(path / CONFIG), "engine": "inprocess"}, f"'{path / CONFIG}'")
    with (
        RunFolder.read_only(path, resolve_device(settings.device)) as folder,
        prepare(settings) as prepared,
    ):
        restored = folder.restore()
        if restored is None:
            raise UserError(
                f"{path} has no checkpoint yet, so there is no model to look at; go on with `fedloom resume {path}`"
            )
        for warning in restored.warnings:
            tell(f"note: {warning}")
        if restored.state.round < settings.rounds:
            tell(
                f"note: the run is unfinished; this is its model after round {restored.state.round} of {settings.rounds}"
            )
        yield Reopened(prepared, restored.state, folder.store)


def cohort(run: Reopened, count: int | None, key: Key) -> list[int]:
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


def replay(run: Reopened, clients: list[int], go: Callable[[], bool]) -> list[Trained]:
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
