"""Whether clients get the same numbers side by side as alone, found for any method and model by letting tiny ones play both ways.

No list of methods could be kept true. What a loss reads, whether a layer mixes samples or draws, what torch can batch: all of it
shows in two rounds of four unequal clients in float64.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedloom.core.client import Broadcast, ClientTask, Federation
from fedloom.core.job import Data, build_isolated
from fedloom.core.params import add
from fedloom.core.round import Simulation, init_state
from fedloom.core.sampler import everyone
from fedloom.core.server import Reply
from fedloom.core.solver import Schedule, Sgd
from fedloom.engines.inprocess import InProcess
from fedloom.engines.vmap_round import Lanes
from fedloom.engines.wire import flatten

TOLERANCE = 1e-9
SIZES = (7, 5, 1, 2)
BATCH = 3  # unequal steps and tails; a tail of two becomes three by repeating one row, which changes a mean over all


@dataclass(frozen=True)
class TinyClients:
    """The first samples of a client, over and over until there are `count`, in float64."""

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
        return x.double() if x.is_floating_point() else x, y


def difference_from_exact(federation: Federation) -> str | None:
    """Why the federation's method and model cannot be played side by side, or None if they can."""
    about = f"method '{federation.method.name}' on this model"
    try:
        gap = _gap(_tiny(federation))
    except Exception as error:  # whatever a loss, a layer or vmap may say
        said = str(error).partition("\n")[0]
        return f"{about} cannot be stacked ({type(error).__name__}: {said})"
    return (
        None
        if gap < TOLERANCE
        else f"{about} gives other numbers side by side than alone, by {gap:.1e} in float64"
    )


def _tiny(federation: Federation) -> Federation:
    """The same method, model and rule of descent on few samples, with small steps so that rounding stays small."""
    some = itertools.cycle(
        heapq.nlargest(len(SIZES), federation.clients, key=len)
    )  # whose samples differ, if any do
    phase = federation.method.phases[0]
    solver = phase.solver_for(federation.solver)
    assert isinstance(solver, Sgd)
    steps = None if solver.steps is None else min(solver.steps, 3)
    solver = replace(
        solver, lr=0.01, schedule=Schedule(), batch=BATCH, epochs=min(solver.epochs, 2), steps=steps
    )
    return replace(
        federation,
        method=replace(federation.method, phases=(replace(phase, solver=solver),)),
        build=lambda: federation.build().double(),
        clients=[TinyClients(data, size) for size, data in zip(SIZES, some, strict=False)],
    )


def _gap(tiny: Federation) -> float:
    """The largest difference of any reply in two rounds; the second has memories, other weights, and what a server might send."""
    alone, together = InProcess(tiny), Lanes(tiny)
    state = init_state(Simulation(tiny, everyone(), alone), build_isolated(tiny.build))
    sent, tasks = (
        Broadcast("train", 0, state.params, state.shared),
        [ClientTask(c) for c in range(len(SIZES))],
    )
    replies: dict[int, Reply] = dict(alone.map(sent, tasks))
    gaps = [_distance(replies[r.client], r) for r in together.play(sent, tasks)]
    uploads = dict(replies[0].uploads)
    sent = Broadcast("train", 1, add(sent.params, uploads.pop("model")), {**sent.shared, **uploads})
    tasks = [ClientTask(c, reply.memories) for c, reply in replies.items()]
    replies = dict(alone.map(sent, tasks))
    gaps += [_distance(replies[r.client], r) for r in together.play(sent, tasks)]
    return float(torch.stack(gaps).max())  # not Python's max, which may lose a NaN


def _distance(a: Reply, b: Reply) -> Tensor:
    ours, theirs = (flatten(r.uploads, "uploads") | flatten(r.memories, "memories") for r in (a, b))
    if ours.keys() != theirs.keys() or (a.samples, a.seen, a.steps) != (b.samples, b.seen, b.steps):
        return torch.tensor(torch.inf, dtype=torch.float64)
    gaps = [torch.linalg.vector_norm((t - theirs[n]).double()).cpu() for n, t in ours.items()]
    return torch.stack([*gaps, torch.tensor(abs(a.loss - b.loss), dtype=torch.float64)]).max()
