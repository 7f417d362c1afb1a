"""Runs a federation in one call and records everything that engines answered."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from safetensors.torch import load, save

from fedloom.core.chain import Chain
from fedloom.core.client import job_for
from fedloom.core.federation import Federation
from fedloom.core.guard import Guard
from fedloom.core.job import Data, Job, ModelPool
from fedloom.core.key import Key
from fedloom.core.learning_task import CLASSIFICATION, LearningTask
from fedloom.core.method import Method
from fedloom.core.params import Params
from fedloom.core.request import Broadcast, ClientTask, Task
from fedloom.core.round import rounds
from fedloom.core.round_report import RoundReport
from fedloom.core.sampler import Sampler, uniform
from fedloom.core.server import Reply
from fedloom.core.simulation import Simulation, init_state
from fedloom.core.solver import Sgd, Solver
from fedloom.core.state import MemoryStore, ServerState
from fedloom.engines.inprocess import InProcess
from fedloom.runs.state_layout import flattened, layout_of, unflattened
from support.clients import TensorClient, tiny_clients
from support.models import CLASSES, Build, nested

SOLVER = Sgd(lr=0.1, batch=4, epochs=2)


class RecordingEngine:
    """An engine that records the answers to every broadcast."""

    def __init__(self, engine: InProcess) -> None:
        self.engine = engine
        self.answers: list[dict[int, Any]] = []

    def map(self, sent: Broadcast, tasks: Iterable[Task]) -> Iterator[tuple[int, Any]]:
        self.answers.append({})
        for client, answer in self.engine.map(sent, tasks):
            self.answers[-1][client] = answer
            yield client, answer

    def close(self) -> None:
        self.engine.close()


@dataclass(frozen=True)
class SimulationResult:
    """Everything about a finished run."""

    simulation: Simulation
    start: ServerState
    state: ServerState
    store: MemoryStore
    reports: tuple[RoundReport, ...]
    answers: Sequence[dict[int, Any]]

    @property
    def replies(self) -> list[Reply]:
        """All replies, round by round, in client order."""
        return [
            a
            for answers in self.answers
            for _, a in sorted(answers.items())
            if isinstance(a, Reply)
        ]

    def personal(self, client: int) -> Params:
        """The client's final weights."""
        sent = Broadcast("personalise", self.state.round, self.state.params, self.state.shared)
        return dict(
            self.simulation.engine.map(sent, [ClientTask(client, self.store.recall(client))])
        )[client]


def initial_model(build: Build) -> Chain:
    """A model with the same initial weights every time; the global generator is restored."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        return build()


def reshaped_build(method: Method, build: Build, seed: int = 0) -> Build:
    """Builds the model that the method trains."""
    return lambda: method.reshaped(build(), Key.root(seed).fold("init"))


def make_simulation(
    method: Method,
    *,
    build: Build = nested,
    clients: Sequence[Data] | None = None,
    sampler: Sampler | None = None,
    solver: Solver = SOLVER,
    seed: int = 0,
    strict: bool = True,
    task: LearningTask = CLASSIFICATION,
) -> Simulation:
    """A simulation with tiny clients, three per round.

    strict: a failing client fails the test; False for tests about clients that are left out.
    """
    federation = Federation(
        method,
        reshaped_build(method, build, seed),
        clients or tiny_clients(),
        solver,
        Key.root(seed),
        classes=CLASSES,
        task=task,
    )
    engine = RecordingEngine(InProcess(federation))
    return Simulation(federation, sampler or uniform(3), engine, Guard(strict=strict))


def simulate(
    method: Method,
    until: int = 3,
    *,
    resume_from: tuple[ServerState, MemoryStore] | None = None,
    **given: Any,
) -> SimulationResult:
    """Run the method until `until` rounds are done.

    resume_from: a state and the clients' memories to start from.
    """
    simulation = make_simulation(method, **given)
    state, store = resume_from or (
        init_state(simulation, initial_model(simulation.federation.build)),
        MemoryStore(),
    )
    done = list(rounds(simulation, state, store, until))
    end = done[-1][0] if done else state
    return SimulationResult(
        simulation,
        state,
        end,
        store,
        tuple(report for _, report in done),
        simulation.engine.answers,
    )  # type: ignore[attr-defined]


def saved_and_loaded(result: SimulationResult) -> tuple[ServerState, MemoryStore]:
    """The state and the clients' memories, saved to bytes and loaded again."""
    store = MemoryStore()
    for client in range(len(result.simulation.federation.clients)):
        flat = {
            f"{slot}/{n}": t
            for slot, memory in result.store.recall(client).items()
            for n, t in memory.items()
        }
        memories: dict[str, Params] = {}
        for path, t in load(save(flat)).items():
            slot, name = path.split("/", 1)
            memories.setdefault(slot, {})[name] = t
        store.remember(client, memories)
    state = result.state
    stored = load(save(flattened(state)))
    return unflattened(state.round, layout_of(state), stored), store


def standalone_job(build: Build, received: Params, data: Data | None = None, **given: Any) -> Job:
    """A client's job outside of a round, to evaluate a loss."""
    no_data = TensorClient(torch.zeros(1, 1), torch.zeros(1, dtype=torch.int64))
    federation = Federation(Method("none"), build, [data or no_data], SOLVER, Key.root(0))
    sent = Broadcast("train", 0, received, given.get("shared", {}))
    return job_for(federation, ModelPool(build), sent, ClientTask(0, given.get("memories", {})))
