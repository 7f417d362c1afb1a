"""Check that vectorised clients get the same numbers as clients run alone.

It works for any method and model, by running tiny clients both ways. A list of supported methods
could not be kept correct. What a loss reads, whether a layer mixes samples or draws, what torch can
batch: all of it shows in two rounds of four clients of unequal size in float64.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedloom.core.errors import RunError
from fedloom.core.federation import Federation
from fedloom.core.job import Data, build_isolated
from fedloom.core.params import Params
from fedloom.core.request import Broadcast, ClientTask
from fedloom.core.roles import change, moved
from fedloom.core.sampler import everyone
from fedloom.core.server import Absent, Reply, weighted_sum
from fedloom.core.simulation import Simulation, init_state
from fedloom.core.solver import Schedule, Sgd
from fedloom.engines.inprocess import InProcess
from fedloom.engines.vmap_round import VmapRound
from fedloom.engines.wire import flatten

TOLERANCE = 1e-9
# unequal numbers of steps and unequal last batches; a last batch of two is padded by repeating a
# row, which changes a mean over all rows
CLIENT_SIZES = (7, 5, 1, 2)
BATCH = 3


@dataclass(frozen=True)
class TinyClients:
    """The first samples of a client, repeated until there are `count`, in float64."""

    data: Data
    count: int

    def __len__(self) -> int:
        return self.count

    @property
    def labels(self) -> Tensor:
        return self.data.labels[torch.arange(self.count) % len(self.data)]

    def batch(
        self, positions: Tensor, generator: torch.Generator | None = None, train: bool = True
    ) -> tuple[Tensor, Tensor]:
        x, y = self.data.batch(positions % len(self.data), generator, train)
        return _doubled(x), _doubled(y)

    def checksum(self) -> int:
        return self.data.checksum()


def _doubled(t: Tensor) -> Tensor:
    return t.double() if t.is_floating_point() else t


def difference_from_exact(federation: Federation) -> str | None:
    """Why this method cannot be vectorised on this model, or None if it can."""
    subject = f"method '{federation.method.name}' on this model"
    try:
        difference = _largest_difference(_tiny(federation))
    except Exception as error:  # whatever a loss, a layer or vmap may raise
        first_line = str(error).partition("\n")[0]
        return f"{subject} cannot be vectorised ({type(error).__name__}: {first_line})"
    if difference < TOLERANCE:
        return None
    return f"{subject} gives other numbers vectorised than alone, by {difference:.1e} in float64"


def _tiny(federation: Federation) -> Federation:
    """The same method, model and rule on few samples, with small steps to keep rounding small."""
    # the largest clients: their samples differ, if any do
    largest = itertools.cycle(heapq.nlargest(len(CLIENT_SIZES), federation.clients, key=len))
    phase = federation.method.phases[0]
    solver = phase.solver_for(federation.solver)
    assert isinstance(solver, Sgd)
    solver = replace(
        solver,
        lr=0.01,
        schedule=Schedule(),
        batch=BATCH,
        epochs=min(solver.epochs, 2),
        steps=None if solver.steps is None else min(solver.steps, 3),
    )
    return replace(
        federation,
        method=replace(federation.method, phases=(replace(phase, solver=solver),)),
        build=lambda: federation.build().double(),
        clients=[TinyClients(data, n) for n, data in zip(CLIENT_SIZES, largest, strict=False)],
    )


def _largest_difference(tiny: Federation) -> float:
    """The largest difference of any reply in two rounds.

    The second round has memories, other weights, and what a server might send.
    """
    alone, vectorised = InProcess(tiny), VmapRound(tiny)
    state = init_state(Simulation(tiny, everyone(), alone), build_isolated(tiny.build))
    sent = Broadcast("train", 0, state.params, state.shared)
    tasks = [ClientTask(client) for client in range(len(CLIENT_SIZES))]
    replies, distances = _both_ways(alone, vectorised, sent, tasks)
    uploads = dict(replies[0].uploads)
    params = moved(sent.params, weighted_sum([uploads.pop("model")], [1.0]))
    sent = Broadcast("train", 1, params, {**sent.shared, **uploads})
    tasks = [ClientTask(client, reply.memories) for client, reply in replies.items()]
    _, more = _both_ways(alone, vectorised, sent, tasks)
    return float(torch.stack(distances + more).max())  # Python's max could ignore a NaN


def _both_ways(
    alone: InProcess, vectorised: VmapRound, sent: Broadcast, tasks: Sequence[ClientTask]
) -> tuple[dict[int, Reply], list[Tensor]]:
    """The replies of clients run alone, and how far those of the same clients vectorised differ."""
    replies: dict[int, Reply] = {}
    for client, reply in alone.map(sent, tasks):
        if isinstance(reply, Absent):
            raise RunError(f"client {client} of the check: {reply.reason}")
        replies[client] = reply
    batched = vectorised.run(sent, tasks)
    return replies, [_distance(replies[reply.client], reply) for reply in batched]


def _distance(a: Reply, b: Reply) -> Tensor:
    """The largest norm of a difference between two replies; inf if they do not correspond."""
    ours, theirs = _tensors(a), _tensors(b)
    if ours.keys() != theirs.keys() or (a.samples, a.seen, a.steps) != (b.samples, b.seen, b.steps):
        return torch.tensor(torch.inf, dtype=torch.float64)
    norms = [torch.linalg.vector_norm(change(t, theirs[n]).double()).cpu() for n, t in ours.items()]
    return torch.stack([*norms, torch.tensor(abs(a.loss - b.loss), dtype=torch.float64)]).max()


def _tensors(reply: Reply) -> Params:
    return flatten(reply.uploads, "uploads") | flatten(reply.memories, "memories")
