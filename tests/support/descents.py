"""One client's descent outside of a round, and the same descent by an optimiser of torch."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.core.key import Key
from fedloom.core.params import Params
from fedloom.core.solver import DescentResult, Objective, Sgd, shuffled
from fedloom.core.step import task_loss
from support.clients import TensorClient, tiny_clients
from support.models import Build, bare
from support.simulate import initial_model, standalone_job

KEY = Key.root(9)

# Makes an optimiser of torch for a model; by default torch.optim.SGD.
Optimiser = Callable[..., torch.optim.Optimizer]


def batches(
    size: int, batch: int, epochs: int, key: Key = KEY, smallest: int = 1
) -> Iterator[Tensor]:
    """Shuffled mini-batches, epoch by epoch, as from a data loader."""
    for epoch in range(epochs):
        order = torch.randperm(size, generator=key.fold("epoch", epoch).generator())
        yield from (b for b in order.split(batch) if len(b) >= smallest)


def client_of(build: Build, size: int) -> tuple[Chain, TensorClient]:
    """A model with its initial weights, and samples of its type."""
    (data,), model = tiny_clients((size,)), initial_model(build)
    return model, TensorClient(data.x.to(next(model.parameters()).dtype), data.y)


def descend(solver: Sgd, build: Build = bare, size: int = 11) -> tuple[Params, DescentResult]:
    """One client's descent, outside of a round."""
    model, data = client_of(build, size)
    job = standalone_job(build, dict(model.state_dict()), data)
    chain = job.model_pool.load("model", job.received)
    trace = solver(chain, Objective(task_loss, shuffled), job, KEY)
    return job.model_pool.take("model"), trace


def with_torch(
    build: Build,
    size: int,
    steps: Iterable[Tensor],
    clip: float | None = None,
    optimiser: Optimiser | None = None,
    **options: Any,
) -> Params:
    """The same descent by an optimiser of torch. optimiser: made from the model; default SGD."""
    model, data = client_of(build, size)
    made = optimiser(model) if optimiser else torch.optim.SGD(model.parameters(), **options)
    for positions in steps:
        made.zero_grad()
        nn.functional.cross_entropy(model(data.x[positions]), data.y[positions]).backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        made.step()
    return dict(model.state_dict())
