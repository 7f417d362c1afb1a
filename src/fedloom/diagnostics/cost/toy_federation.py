"""A toy federation that runs a method for two rounds.

In the second round the method has its memories and what its server sends, so its cost can be
counted there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.core.client import answer
from fedloom.core.determinism import one_thread
from fedloom.core.errors import UserError
from fedloom.core.federation import Federation
from fedloom.core.job import ModelPool, Progress, build_isolated
from fedloom.core.key import Key
from fedloom.core.method import Method
from fedloom.core.optimisers import SGDRule
from fedloom.core.request import Broadcast, Task
from fedloom.core.roles import Roles
from fedloom.core.round import rounds
from fedloom.core.round_report import RoundReport
from fedloom.core.rule import Rule
from fedloom.core.sampler import everyone
from fedloom.core.server import Reply
from fedloom.core.simulation import Simulation, init_state
from fedloom.core.solver import Sgd, Solver
from fedloom.core.state import MemoryStore

CLIENTS = 5  # enough for combiners that leave some clients out
MAX_SAMPLES = 1 << 20  # per client, when looking for the number that an exchange needs
Build = Callable[[torch.device], Chain]
Observe = Callable[[Solver], Solver]
S = TypeVar("S", bound=Solver)


@dataclass(frozen=True)
class Workload:
    """What is counted or measured: a method on a model, with samples of a shape, in batches.

    build: makes the model on a device, before the method reshapes it. rule: the run's optimiser,
    for the phases in which the method does not bring its own.
    """

    method: Method
    build: Build
    shape: tuple[int, ...]
    classes: int
    batch: int
    rule: Rule = field(default_factory=SGDRule)


@dataclass(frozen=True)
class SyntheticClient:
    """A client's data: the same batch (x, y) every time, for any number of labels."""

    x: Tensor
    y: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def batch(
        self, positions: Tensor, generator: torch.Generator | None = None, train: bool = True
    ) -> tuple[Tensor, Tensor]:
        return self.x[: len(positions)], self.y[: len(positions)]

    def checksum(self) -> int:
        return 0  # its samples never change


class RecordingModelPool(ModelPool):
    """A model pool that records which models were loaded, by label."""

    def __init__(self, build: Callable[[], Chain]) -> None:
        self.loaded: dict[str, Chain] = {}
        super().__init__(build)

    def load(self, label: str, weights: Mapping[str, Tensor]) -> Chain:
        self.loaded[label] = super().load(label, weights)
        return self.loaded[label]


class SingleClientEngine:
    """An engine that runs the first client only and returns its answer for all of them."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        self.model_pool = RecordingModelPool(federation.build)

    def map(self, sent: Broadcast, tasks: Iterable[Task]) -> Iterator[tuple[int, Any]]:
        first, *others = tasks
        result = answer(self.federation, self.model_pool, sent, first, Progress())
        for task in (first, *others):
            if isinstance(result, Reply):
                yield task.number, replace(result, client=task.number)
            else:
                yield task.number, result

    def close(self) -> None:
        """Nothing to release."""


def run_two_rounds(workload: Workload, device: torch.device, observe: Observe) -> RoundReport:
    """Run two rounds of two steps, and return the report of the second.

    observe: wraps the solver of each phase, so that the wrapper sees its steps.
    """
    key, method = Key.root(0), workload.method
    default_solver = Sgd(batch=workload.batch, steps=2, rule=workload.rule)
    phases = [
        replace(p, solver=observe(_with_two_steps(p.solver_for(default_solver), workload.batch)))
        for p in method.phases
    ]
    federation = Federation(
        method=replace(method, phases=tuple(phases)),
        build=lambda: method.reshaped(workload.build(device), key),
        clients=[synthetic_client(workload, device)] * CLIENTS,
        solver=default_solver,
        key=key,
        classes=workload.classes,
    )
    with one_thread(), torch.random.fork_rng(devices=[]):
        model = build_isolated(federation.build)
        federation = replace(federation, frozen=Roles.of(model).frozen)
        simulation = Simulation(federation, everyone(), SingleClientEngine(federation))
        state = init_state(simulation, model)
        *_, (_, report) = rounds(simulation, state, MemoryStore(), until=2, model=model)
    return report


def collecting(solvers: list[S], wrap: Callable[[Solver], S]) -> Observe:
    """An `Observe` that wraps each solver and appends the wrapper to the list."""

    def observe(solver: Solver) -> Solver:
        solvers.append(wrap(solver))
        return solvers[-1]

    return observe


def _with_two_steps(solver: Solver, batch: int) -> Solver:
    return replace(solver, batch=batch, steps=2) if isinstance(solver, Sgd) else solver


def synthetic_client(workload: Workload, device: torch.device) -> SyntheticClient:
    """A client with one batch of Gaussian noise, or of zero tokens if the model embeds text."""
    batch = workload.batch
    chain = workload.build(torch.device("meta"))
    labels = torch.arange(samples_needed(workload.method, batch)) % workload.classes
    x = synthetic_samples(chain, workload.shape, batch)
    return SyntheticClient(x.to(device), labels[:batch].to(device), labels)


def synthetic_samples(chain: Chain, shape: tuple[int, ...], count: int) -> Tensor:
    """Gaussian noise, or zero tokens if the model embeds text, which has one dimension.

    A model of images may embed the numbers of their patches.
    """
    if len(shape) == 1 and any(isinstance(layer, nn.Embedding) for layer in chain.modules()):
        return torch.zeros(count, *shape, dtype=torch.int64)
    return torch.randn(count, *shape, generator=Key.root(0).fold("noise").generator())


def samples_needed(method: Method, batch: int) -> int:
    """The samples that a client needs for the method's prologue, at least one batch."""
    count = batch
    while count < MAX_SAMPLES:
        try:
            for exchange in method.prologue:
                exchange.notice([count] * CLIENTS, 1)
        except UserError:
            count *= 2
        else:
            return count
    return batch
