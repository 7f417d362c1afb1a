"""Several clients in one call: weights stacked, batches padded to one shape, gradients by vmap.

Each client of the call is a lane. A padded row repeats a row of its client and has weight 0 in the
loss, so that it is finite and changes nothing. A loss is written for one client. What it computes
from its job (`job.once`) is computed before the call: once for all lanes, or, if it uses the
client's data, key or memories, once for each lane.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Never, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from fedloom.core.chain import Chain
from fedloom.core.job import Data, Job
from fedloom.core.key import Key
from fedloom.core.learning_task import TargetLoss
from fedloom.core.params import Params
from fedloom.core.step import Loss, Step
from fedloom.core.transfer import to_device
from fedloom.data.client import ClientData

Positions = list[Tensor]  # the positions of a client's samples, one tensor per batch
Rows = tuple[Tensor, Tensor, Tensor]  # a batch of all lanes: x, y, weight of each row in the loss
OnceCall = tuple[Any, ...]  # the arguments of job.once: a function of the job, and its arguments
MAX_ONCE_CALLS = 32  # of one loss; one that passes a new function in every step would never end


class PerClientAccess(Exception):
    """A loss used something of a single client in a call that is made for all."""


class NotPrepared(Exception):
    """A loss called `job.once` for something that has to be computed before the call."""

    def __init__(self, call: OnceCall) -> None:
        self.call = call


class PerClientValue:
    """Stands in for what differs between clients; any use of it raises PerClientAccess."""

    def _raise(self, *_: Any) -> Never:
        raise PerClientAccess(
            "a loss uses one client's key, data or memories other than through job.once "
            "or step.vector_of"
        )

    __getattr__ = __getitem__ = __contains__ = __iter__ = __len__ = _raise


class LaneJob:
    """The job inside the call: what all clients share, and what was prepared for this lane."""

    def __init__(self, common: Job, prepared: Mapping[OnceCall, Any]) -> None:
        self._common, self._prepared = common, prepared

    def once(self, *call: Any) -> Any:
        if call not in self._prepared:
            raise NotPrepared(call)
        return self._prepared[call]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._common, name)


class LaneGroup:
    """The jobs of the lanes, and the results of `job.once` for them.

    common: results that do not depend on the client. per_lane: the others, stacked.
    """

    def __init__(self, jobs: Sequence[Job]) -> None:
        first, differs = jobs[0], cast(Any, PerClientValue())
        self.jobs = jobs
        self.job = Job(
            client=-1,
            round=first.round,
            key=differs,
            data=differs,
            model_pool=first.model_pool,
            received=first.received,
            shared=first.shared,
            memories=differs,
            classes=first.classes,
            task=first.task,
        )
        self.common: dict[OnceCall, Any] = {}
        self.per_lane: dict[OnceCall, Tensor] = {}

    def prepare(self, call: OnceCall) -> None:
        """Compute the result of `job.once`, unless that has been done."""
        make, *args = call
        if call in self.common or call in self.per_lane:
            return
        try:
            self.common[call] = self.job.once(make, *args)
        except PerClientAccess:
            self.per_lane[call] = torch.stack([job.once(make, *args) for job in self.jobs])


class LaneObjective(nn.Module):
    """A loss as a function of the weights, for one lane and for many."""

    def __init__(self, model: Chain, loss: Loss) -> None:
        super().__init__()
        self.model, self.loss = model, loss
        self.once_calls: dict[OnceCall, None] = {}  # of the loss, in order

    def forward(self, weights: Params, rows: Rows, job: LaneJob, number: int) -> Tensor:
        x, y, share = rows
        no_key = cast(Key, PerClientValue())
        step = Step(x, y, self.model, cast(Job, job), weights, no_key, number)
        step.loss = torch.dot(self._sample_losses(job)(step.logits, y), share)
        return self.loss(step)

    def _sample_losses(self, job: LaneJob) -> TargetLoss:
        """Of the task; a padded row can only be left out of a loss that is a mean over samples."""
        losses: TargetLoss | None = job.task.sample_losses
        if losses is None:
            raise PerClientAccess(f"the loss of the task '{job.task.name}' is no mean over samples")
        return losses

    def gradients(
        self, group: LaneGroup, weights: Params, rows: Rows, number: int
    ) -> tuple[Params, Tensor]:
        """Gradient and loss of every lane.

        The first call finds out what the loss computes by `job.once`. In step 1 all lanes have the
        same weights, unstacked: one large matrix product is faster than many small ones.
        """
        lanes, weights_dim = len(rows[0]), None if number == 1 else 0
        for _ in range(MAX_ONCE_CALLS):
            for call in self.once_calls:
                group.prepare(call)
            per_lane = [result[:lanes] for result in group.per_lane.values()]
            loss = self._lane_loss(group, number)
            try:
                return vmap(grad_and_value(loss), (weights_dim, 0, 0))(weights, rows, per_lane)
            except NotPrepared as missing:
                self.once_calls[missing.call] = None
        raise PerClientAccess(
            f"a loss calls job.once for more than {MAX_ONCE_CALLS} different things; "
            "define the functions that it passes to step.vector_of outside of it"
        )

    def _lane_loss(
        self, group: LaneGroup, number: int
    ) -> Callable[[Params, Rows, list[Tensor]], Tensor]:
        def loss(weights: Params, rows: Rows, per_lane: list[Tensor]) -> Tensor:
            prepared = group.common | dict(zip(group.per_lane, per_lane, strict=True))
            job = LaneJob(group.job, prepared)
            parameters = {f"model.{n}": t for n, t in weights.items()}
            return cast(Tensor, functional_call(self, parameters, (weights, rows, job, number)))

        return loss


def clipped(grads: list[Tensor], bound: float | None) -> list[Tensor]:
    """Each lane's gradient, its global norm bounded."""
    if bound is None:
        return grads
    norms = torch.linalg.vector_norm(torch.stack([g.flatten(1).norm(dim=1) for g in grads]), dim=0)
    factor = torch.clamp(bound / (norms + 1e-6), max=1.0)
    return [g * factor.view(-1, *[1] * (g.dim() - 1)) for g in grads]


def lane_batches(
    jobs: Sequence[Job], keys: Sequence[Key], batches: Sequence[Positions], dtype: torch.dtype
) -> Iterator[Rows]:
    """The batches of all lanes, step by step.

    Lanes are sorted by their number of batches, most first; a lane without a batch left is absent.
    If all clients are views of one split without augmentation, rows are selected for all lanes at
    once; otherwise each client makes its batch.
    """
    if not batches[0]:
        return iter(())
    plain = _views_of_one_split([job.data for job in jobs])
    if plain is not None:
        return _selected_together(plain, batches, dtype)
    noise = [key.fold("batch").generator() for key in keys]
    return _selected_by_client([job.data for job in jobs], noise, batches, dtype)


def _views_of_one_split(data: Sequence[Data]) -> list[ClientData] | None:
    """The data, if they are views of the same split, normalised alike and not augmented."""
    plain = [d for d in data if isinstance(d, ClientData) and d.augment is None]
    if len(plain) < len(data):
        return None
    first = plain[0]
    alike = all(d.split is first.split and d.normalise is first.normalise for d in plain)
    return plain if alike else None


def _selected_together(
    data: Sequence[ClientData], batches: Sequence[Positions], dtype: torch.dtype
) -> Iterator[Rows]:
    split, normalise = data[0].split, data[0].normalise
    sizes = [[len(p) for p in lane] for lane in batches]
    visited = _visited_rows(data, batches, sizes)
    ends = itertools.accumulate(itertools.chain.from_iterable(sizes))
    starts = [[next(ends) - size for size in lane] for lane in sizes]
    for number in range(len(batches[0])):
        index, share = _padded(_at(sizes, number), dtype)
        index = index + torch.tensor(_at(starts, number)).unsqueeze(1)
        rows = visited.index_select(0, to_device(index.flatten(), visited.device))
        x, y = normalise(split.x.index_select(0, rows)), split.y.index_select(0, rows)
        yield (
            x.view(*index.shape, *x.shape[1:]),
            y.view(*index.shape, *y.shape[1:]),
            to_device(share, x.device),
        )


def _visited_rows(
    data: Sequence[ClientData], batches: Sequence[Positions], sizes: Sequence[Sequence[int]]
) -> Tensor:
    """The rows of the split that the lanes visit: lane after lane, batch after batch."""
    samples_before = torch.tensor([0, *itertools.accumulate(len(d) for d in data)][:-1])
    visits = torch.tensor([sum(lane) for lane in sizes])
    positions = torch.cat([p for lane in batches for p in lane])
    positions = positions + samples_before.repeat_interleave(visits)
    rows = torch.cat([d.rows for d in data])
    return rows.index_select(0, to_device(positions, rows.device))


def _selected_by_client(
    data: Sequence[Data],
    noise: Sequence[torch.Generator],
    batches: Sequence[Positions],
    dtype: torch.dtype,
) -> Iterator[Rows]:
    for number in range(len(batches[0])):
        positions = _at(batches, number)
        index, share = _padded([len(p) for p in positions], dtype)
        xs, ys = [], []
        for client, p, generator, rows in zip(data, positions, noise, index, strict=False):
            x, y = client.batch(p, generator)
            xs.append(x[rows])
            ys.append(y[rows])
        stacked = torch.stack(xs)
        yield stacked, torch.stack(ys), to_device(share, stacked.device)


def _at(lanes: Sequence[Sequence[Any]], number: int) -> list[Any]:
    """Item `number` of every lane that has one; the longest lanes come first."""
    return [lane[number] for lane in itertools.takewhile(lambda lane: len(lane) > number, lanes)]


def _padded(sizes: list[int], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """For batches of these sizes, two tables, a row per batch, padded to the largest size.

    The position of each entry in its batch, and its weight in the mean over the batch.
    """
    size, column = torch.tensor(sizes).unsqueeze(1), torch.arange(max(sizes))
    return torch.minimum(column, size - 1), (column < size).to(dtype) / size
