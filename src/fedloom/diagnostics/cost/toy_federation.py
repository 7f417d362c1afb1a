"""A toy federation in which a method plays two rounds, so that in the second it has its memories and what its server sends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.core.client import Broadcast, Federation, Task, answer
from fedloom.core.determinism import one_thread
from fedloom.core.errors import UserError
from fedloom.core.job import ModelPool, Progress, build_isolated
from fedloom.core.key import Key
from fedloom.core.method import Method
from fedloom.core.round import Simulation, init_state, rounds
from fedloom.core.round_report import RoundReport
from fedloom.core.sampler import everyone
from fedloom.core.server import Reply
from fedloom.core.solver import Sgd, Solver
from fedloom.core.state import MemoryStore

CLIENTS = 5  # enough for combiners that leave some out
MOST = 1 << 20  # samples that a client may need before it answers a question
Build = Callable[[torch.device], Chain]
Observe = Callable[[Solver], Solver]
S = TypeVar("S", bound=Solver)


@dataclass(frozen=True)
class Scene:
    """What is played: a method on a model, made on a device and not yet reshaped, with samples of a shape, in batches."""

    method: Method
    build: Build
    shape: tuple[int, ...]
    classes: int
    batch: int


@dataclass(frozen=True)
class Blank:
    """A client with one batch of noise, or of first characters for a model of text, over and over where it has more samples."""

    x: Tensor
    y: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def batch(
        self, positions: Tensor, generator: torch.Generator | None = None, train: bool = True
    ) -> tuple[Tensor, Tensor]:
        return self.x[: len(positions)], self.y[: len(positions)]


class Shelf(ModelPool):
    """A bench that remembers which models were loaded."""

    def __init__(self, build: Callable[[], Chain]) -> None:
        self.loaded: dict[str, Chain] = {}
        super().__init__(build)

    def load(self, label: str, weights: Mapping[str, Tensor]) -> Chain:
        self.loaded[label] = super().load(label, weights)
        return self.loaded[label]


class Alike:
    """An engine that plays one client and lets all others answer as it did."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        self.model_pool = Shelf(federation.build)

    def map(self, sent: Broadcast, tasks: Iterable[Task]) -> Iterator[tuple[int, Any]]:
        first, *others = tasks
        said = answer(self.federation, self.model_pool, sent, first, Progress())
        for task in (first, *others):
            yield (
                task.number,
                replace(said, client=task.number) if isinstance(said, Reply) else said,
            )

    def close(self) -> None:
        """Nothing is held."""


def play(scene: Scene, device: torch.device, observe: Observe) -> RoundReport:
    """The second of two rounds of two steps, under the eyes of what `observe` makes of each phase's solver."""
    key, method = Key.root(0), scene.method
    plain = Sgd(batch=scene.batch, steps=2)
    seen = [
        replace(p, solver=observe(_short(p.solver_for(plain), scene.batch))) for p in method.phases
    ]
    federation = Federation(
        method=replace(method, phases=tuple(seen)),
        build=lambda: method.reshaped(scene.build(device), key),
        clients=[blank(scene, device)] * CLIENTS,
        solver=plain,
        key=key,
        classes=scene.classes,
    )
    with one_thread(), torch.random.fork_rng(devices=[]):
        simulation = Simulation(federation, everyone(), Alike(federation))
        state = init_state(simulation, build_isolated(federation.build))
        *_, (_, report) = rounds(simulation, state, MemoryStore(), until=2)
    return report


def noted(kept: list[S], make: Callable[[Solver], S]) -> Observe:
    """What `make` makes of each solver, to be looked at when the play is over."""

    def observe(solver: Solver) -> Solver:
        kept.append(make(solver))
        return kept[-1]

    return observe


def _short(solver: Solver, batch: int) -> Solver:
    return replace(solver, batch=batch, steps=2) if isinstance(solver, Sgd) else solver


def blank(scene: Scene, device: torch.device) -> Blank:
    """A client's data."""
    chain = scene.build(torch.device("meta"))
    labels = torch.arange(enough(scene.method, scene.batch)) % scene.classes
    if any(isinstance(layer, nn.Embedding) for layer in chain.modules()):
        x = torch.zeros(scene.batch, *scene.shape, dtype=torch.int64)
    else:
        x = torch.randn(scene.batch, *scene.shape, generator=Key.root(0).fold("noise").generator())
    return Blank(x.to(device), labels[: scene.batch].to(device), labels)


def enough(method: Method, batch: int) -> int:
    """A batch, or as many samples as a client must have to be asked the questions of the method."""
    count = batch
    while count < MOST:
        try:
            for question in method.prologue:
                question.notice([count] * CLIENTS, 1)
        except UserError:
            count *= 2
        else:
            return count
    return batch
