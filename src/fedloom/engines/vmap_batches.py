"""Clients side by side in one call: their weights stacked, their batches padded to one shape, their gradients taken by vmap.

A padded row repeats a row of its client and has no share in the loss, so that it is finite and changes nothing. A loss is written
for one client; what it makes of a job is made before the call: once for all, or, where it looks at the client, one for each.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Never, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from fedloom.core.chain import Chain
from fedloom.core.job import Data, Job
from fedloom.core.key import Key
from fedloom.core.params import Params
from fedloom.core.step import Loss, Step
from fedloom.data.client import ClientData

Positions = list[Tensor]  # of one client: a tensor for each of its batches
Rows = tuple[
    Tensor, Tensor, Tensor
]  # of all lanes in one step: x, y, and the share of each row in its lane's mean
Made = tuple[Any, ...]  # a function of a job, and its further arguments
MOST_LANES = 32  # things that a loss may have made of its job; one that asks for a new function every time would never end


class Apart(Exception):
    """A loss looked at a single client in a call that is made for all."""


class Missing(Exception):
    """A loss asked for something of its job that has to be made before the call."""

    def __init__(self, made: Made) -> None:
        self.made = made


class Single:
    """Stands where a job holds what is one client's own; nobody can look at it."""

    def _refuse(self, *_: Any) -> Never:
        raise Apart(
            "a loss looks at one client's key, data or memories other than through job.once or step.vector_of"
        )

    __getattr__ = __getitem__ = __contains__ = __iter__ = __len__ = _refuse


class LaneJob:
    """A job inside the call: what all clients share, and what was made of each before."""

    def __init__(self, common: Job, given: Mapping[Made, Any]) -> None:
        self._common, self._given = common, given

    def once(self, *made: Any) -> Any:
        if made not in self._given:
            raise Missing(made)
        return self._given[made]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._common, name)


class LaneGroup:
    """The jobs of the lanes and what a loss makes of them: `common` where it does not look at the client, else `own`, stacked."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        first, own = jobs[0], cast(Any, Single())
        self.jobs = jobs
        self.job = Job(
            -1,
            first.round,
            own,
            own,
            first.model_pool,
            first.received,
            first.shared,
            own,
            first.classes,
        )
        self.common: dict[Made, Any] = {}
        self.own: dict[Made, Tensor] = {}

    def prepare(self, made: Made) -> None:
        """Make it, if it has not been made yet."""
        make, *args = made
        if made in self.common or made in self.own:
            return
        try:
            self.common[made] = self.job.once(make, *args)
        except Apart:
            self.own[made] = torch.stack([job.once(make, *args) for job in self.jobs])


class LaneObjective(nn.Module):
    """A loss as a function of the weights, for one lane and for many."""

    def __init__(self, model: Chain, loss: Loss) -> None:
        super().__init__()
        self.model, self.loss = model, loss
        self.asked: dict[Made, None] = {}  # in the order in which the loss asked

    def forward(self, weights: Params, rows: Rows, job: LaneJob, number: int) -> Tensor:
        x, y, share = rows
        step = Step(x, y, self.model, cast(Job, job), weights, cast(Key, Single()), number)
        step.ce = torch.dot(F.cross_entropy(step.logits, y, reduction="none"), share)
        return self.loss(step)

    def gradients(
        self, crew: LaneGroup, weights: Params, rows: Rows, number: int
    ) -> tuple[Params, Tensor]:
        """Gradient and loss of every lane; what a loss asks of its job is known after the first call.

        In the first step the weights are those of all lanes, unstacked: one large product is faster than many small ones.
        """
        lanes, stacked = len(rows[0]), None if number == 1 else 0
        for _ in range(MOST_LANES):
            for made in self.asked:
                crew.prepare(made)
            own = [made[:lanes] for made in crew.own.values()]
            try:
                return vmap(grad_and_value(self._one(crew, number)), (stacked, 0, 0))(
                    weights, rows, own
                )
            except Missing as missing:
                self.asked[missing.made] = None
        raise Apart(
            f"a loss asks its job for more than {MOST_LANES} things; make the functions it hands to step.vector_of outside of it"
        )

    def _one(self, crew: LaneGroup, number: int) -> Callable[[Params, Rows, list[Tensor]], Tensor]:
        def loss(weights: Params, rows: Rows, own: list[Tensor]) -> Tensor:
            job = LaneJob(crew.job, crew.common | dict(zip(crew.own, own, strict=True)))
            inside = {f"model.{n}": t for n, t in weights.items()}
            return cast(Tensor, functional_call(self, inside, (weights, rows, job, number)))

        return loss


def clipped(grads: list[Tensor], bound: float | None) -> list[Tensor]:
    """Each lane's gradient, its global norm bounded."""
    if bound is None:
        return grads
    norms = torch.linalg.vector_norm(torch.stack([g.flatten(1).norm(dim=1) for g in grads]), dim=0)
    factor = torch.clamp(bound / (norms + 1e-6), max=1.0)
    return [g * factor.view(-1, *[1] * (g.dim() - 1)) for g in grads]


def feed(
    jobs: Sequence[Job], keys: Sequence[Key], batches: Sequence[Positions], dtype: torch.dtype
) -> Iterator[Rows]:
    """The batches of the lanes, step by step; those with most steps stand in front, and fewer and fewer are left.

    Rows are selected for all lanes at once where they lie in one split and are taken as they are; else each client makes its batch.
    """
    plain = [d for job in jobs if isinstance(d := job.data, ClientData) and d.augment is None]
    if not batches[0]:
        return iter(())
    if len(plain) == len(jobs) and all(
        d.split is plain[0].split and d.normalise is plain[0].normalise for d in plain
    ):
        return _selected(plain, batches, dtype)
    return _collected(
        [job.data for job in jobs], [key.fold("batch").generator() for key in keys], batches, dtype
    )


def _selected(
    data: Sequence[ClientData], batches: Sequence[Positions], dtype: torch.dtype
) -> Iterator[Rows]:
    split, normalise = data[0].split, data[0].normalise
    sizes = [[len(p) for p in lane] for lane in batches]
    ends = itertools.accumulate(itertools.chain.from_iterable(sizes))
    starts = [[next(ends) - size for size in lane] for lane in sizes]
    before = torch.tensor([0, *itertools.accumulate(len(d) for d in data)][:-1])
    visits = torch.tensor([sum(lane) for lane in sizes])
    places = torch.cat([p for lane in batches for p in lane]) + before.repeat_interleave(visits)
    held = torch.cat([d.rows for d in data])
    visited = held.index_select(0, places.to(held.device))
    for number in range(len(batches[0])):
        index, share = _padded(_at(sizes, number), dtype)
        index = index + torch.tensor(_at(starts, number)).unsqueeze(1)
        rows = visited.index_select(0, index.flatten().to(held.device))
        x, y = normalise(split.x.index_select(0, rows)), split.y.index_select(0, rows)
        yield x.view(*index.shape, *x.shape[1:]), y.view(index.shape), share.to(x.device)


def _collected(
    data: Sequence[Data],
    noise: Sequence[torch.Generator],
    batches: Sequence[Positions],
    dtype: torch.dtype,
) -> Iterator[Rows]:
    for number in range(len(batches[0])):
        positions = _at(batches, number)
        index, share = _padded([len(p) for p in positions], dtype)
        made = [
            d.batch(p, generator) for d, p, generator in zip(data, positions, noise, strict=False)
        ]
        x, y = (
            torch.stack([t[i] for t, i in zip(part, index, strict=True)])
            for part in zip(*made, strict=True)
        )
        yield x, y, share.to(x.device)


def _at(lanes: Sequence[Sequence[Any]], number: int) -> list[Any]:
    """What the lanes that come so far have there."""
    return [lane[number] for lane in itertools.takewhile(lambda lane: len(lane) > number, lanes)]


def _padded(sizes: list[int], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """For batches of these sizes, as a table: the position of each row in its batch, and its share in the mean."""
    size, column = torch.tensor(sizes).unsqueeze(1), torch.arange(max(sizes))
    return torch.minimum(column, size - 1), (column < size).to(dtype) / size
