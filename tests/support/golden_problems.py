"""Federations defined by a golden file: a weight vector, fixed updates, fixed mini-batches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.core.job import Data, Job
from fedloom.core.key import Key
from fedloom.core.sampler import Sampler
from fedloom.core.solver import DescentResult, Objective
from fedloom.core.step import Step
from support.clients import TensorClient
from support.models import Build, vector

POINT = "point.w"


@dataclass(frozen=True)
class FixedUpdates:
    """A solver that adds fixed updates to the weights, by round and client."""

    change: Callable[[int, int], Tensor]

    def __call__(self, model: Chain, objective: Objective, job: Job, key: Key) -> DescentResult:
        with torch.no_grad():
            for p in model.parameters():
                p += self.change(job.round, job.client)
        return DescentResult(steps=1, seen=len(job.data), loss=0.0, lr_sum=1.0)


def empty_clients(sizes: Sequence[int]) -> list[TensorClient]:
    """Clients without data that claim these sizes."""
    return [
        TensorClient(torch.zeros(1, 1), torch.zeros(1, dtype=torch.int64), size=int(s))
        for s in sizes
    ]


def fixed_cohorts(cohorts: Sequence[Sequence[int]]) -> Sampler:
    """A sampler that returns these cohorts, round by round."""
    return lambda round, key, sizes: sorted(int(c) for c in cohorts[round])


def fixed_order(rows: int) -> Callable[[Data, torch.Generator], Tensor]:
    """An order that visits the first rows in their order, in every epoch."""
    return lambda data, generator: torch.arange(rows)


def starting_at(w: Tensor) -> Build:
    """Builds a weight vector with these values."""

    def build() -> Chain:
        chain = vector(len(w))()
        with torch.no_grad():
            chain.get_parameter(POINT).copy_(w)
        return chain

    return build


def quadratic(step: Step) -> Tensor:
    """1/2 (w - c)' A (w - c); the single sample of a batch is (A, c)."""
    gap = step.params[POINT] - step.y[0]
    return 0.5 * gap @ step.x[0] @ gap


def logistic(step: Step) -> Tensor:
    """Softmax regression without bias; the single row of a batch is a mini-batch (x, y)."""
    weights = step.params[POINT].reshape(3, -1)
    return nn.functional.cross_entropy(step.x[0] @ weights.T, step.y[0])


@dataclass(frozen=True)
class Problem:
    """One of the two federations of the golden file: loss, clients, batches and initial weights."""

    name: str
    loss: Callable[[Step], Tensor]
    clients: list[TensorClient]
    rows: int
    w0: Tensor
    v0: Tensor

    @property
    def phase(self) -> dict[str, Any]:
        """The arguments of every phase on this problem."""
        return {"loss": self.loss, "order": fixed_order(self.rows)}


def problem(name: str, numbers: dict[str, Tensor]) -> Problem:
    """`quad` or `log` of e_pfl_rounds; clients claim the golden sizes, whatever their rows."""
    sizes = numbers["n_k"].tolist()
    xs, ys = (
        (numbers["quad_A"], numbers["quad_c"])
        if name == "quad"
        else (numbers["log_X"], numbers["log_Y"])
    )
    if name == "quad":
        xs, ys = xs.unsqueeze(1), ys.unsqueeze(1)
    clients = [TensorClient(x, y, size) for x, y, size in zip(xs, ys, sizes, strict=True)]
    loss = quadratic if name == "quad" else logistic
    return Problem(name, loss, clients, xs.shape[1], numbers[f"{name}_w0"], numbers[f"{name}_v0"])
