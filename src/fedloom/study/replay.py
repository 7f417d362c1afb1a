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

from fedloom.core.afresh import asked, training
from fedloom.core.client import Task
from fedloom.core.errors import UserError
from fedloom.core.key import Key
from fedloom.core.params import Params, add
from fedloom.core.round import expected
from fedloom.core.sampler import uniform
from fedloom.core.server import Reply
from fedloom.core.state import ClientStore, ServerState
from fedloom.data.client import Batch, ClientData
from fedloom.study.assemble import Study, assemble
from fedloom.study.config import load
from fedloom.study.folder import CONFIG, RunFolder
from fedloom.study.parts import device_of
from fedloom.study.raw import read


@dataclass(frozen=True)
class Reopened:
    """A run as its last sound checkpoint has it."""

    study: Study
    state: ServerState
    store: ClientStore

    @property
    def round(self) -> int:
        """The round that is replayed, counted from 0."""
        return min(self.state.round, self.study.config.rounds - 1)


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
    with RunFolder.read_only(path, device_of(settings.device)) as folder, assemble(settings) as study:
        restored = folder.restore()
        if restored is None:
            raise UserError(f"{path} has no checkpoint yet, so there is no model to look at; go on with `fedloom resume {path}`")
        for warning in restored.warnings:
            tell(f"note: {warning}")
        if restored.state.round < settings.rounds:
            tell(f"note: the run is unfinished; this is its model after round {restored.state.round} of {settings.rounds}")
        yield Reopened(study, restored.state, folder.store)


def cohort(run: Reopened, count: int | None, key: Key) -> list[int]:
    """The round's own clients, or so many of all, drawn from the key."""
    sizes, loom = [len(c) for c in run.study.clients], run.study.loom
    if count is None:
        return loom.sampler(run.round, loom.federation.key.fold("cohort", run.round), sizes)
    if count > len(sizes):
        raise UserError(f"--clients {count} is more than the {len(sizes)} clients of the run; lower it")
    return uniform(count)(run.round, key, sizes)


def replay(run: Reopened, clients: list[int], go: Callable[[], bool]) -> list[Trained]:
    """These clients after their round, as far as there is time; two at least, since they are compared. Nothing is kept."""
    loom, state, replies = run.study.loom, replace(run.state, round=run.round), []
    sent = training(state, asked(loom.federation, loom.engine.map, state, run.store, clients))
    for number, client in enumerate(clients):
        if not go() and number >= 2:
            break
        replies += [reply for _, reply in loom.engine.map(sent, [Task(client, run.store.recall(client))])]
    sound, refused = loom.guard.sift(replies, expected(loom.federation.method, run.study.model, state), clients)
    if len(sound) < 2:
        why = "; ".join(f"client {c}: {said}" for c, said in refused.items()) or "the round has one client"
        raise UserError(f"clients are compared with each other, and there are {len(sound)} of them ({why}); raise --clients")
    return [_trained(state.params, reply) for reply in sound]


def _trained(received: Params, reply: Reply) -> Trained:
    update = reply.uploads["model"]
    return Trained(reply.client, reply.samples, update, {**add(received, update), **reply.mine.get("private", {})})


def training_samples(study: Study, count: int, key: Key) -> Batch:
    """So many samples of all clients' training data, drawn from the key, not augmented."""
    clients = study.clients
    order = torch.randperm(len(clients.rows), generator=key.generator())[:count]
    return ClientData(clients.split, clients.rows, clients.normalise).batch(order, train=False)
