"""How often a method would wait for a GPU, and copy to or from it: counted on a simulated one.

    python -m benchmarks.transfers [--only fedavg,m2m] [--json FILE]

Every method runs two rounds on a small residual net with augmented images, on the device of
benchmarks/simulated_gpu.py. The second round is counted, with all memories in place; of a method
that trains after the last round, that training. Runs with more steps and with more clients tell
what a step, a client and a round cost:

    total(clients, steps) = round + clients * client + steps * step

A copy that need not be waited for counts as a copy only. "test batch" is one batch of an
evaluation, "batch norm" FedAvg on a net with batch norm.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import torch

from benchmarks.measure import save
from benchmarks.simulated_gpu import DEVICE, SimulatedGpu, Traffic, register
from fedloom.core.chain import Chain
from fedloom.core.client import Broadcast, ClientTask, Federation
from fedloom.core.evaluate import count_correct
from fedloom.core.guard import Guard
from fedloom.core.job import Job, build_isolated
from fedloom.core.key import Key
from fedloom.core.method import Method, Phase
from fedloom.core.round import rounds
from fedloom.core.sampler import everyone
from fedloom.core.simulation import Simulation, init_state
from fedloom.core.solver import DescentResult, Objective, Sgd, SGDRule, Solver
from fedloom.core.spec import parse
from fedloom.core.state import MemoryStore, ServerState
from fedloom.data import augment
from fedloom.data.client import EvaluationBatches, federate, normaliser, place
from fedloom.data.dataset import Dataset, Split
from fedloom.engines.inprocess import InProcess
from fedloom.methods.registry import entry, names
from fedloom.models.layers import make_norm
from fedloom.models.residual import residual_chain

CLASSES, SHAPE, BATCH, SAMPLES = 5, (3, 8, 8), 4, 64
CLIENTS, STEPS = 2, 2
METHODS = (*names(), "batch norm", "test batch")


class Cost(NamedTuple):
    """Waits and copies."""

    waits: float
    copies: float


@dataclass(frozen=True)
class Counts:
    """What a method costs for each step, each client and each round."""

    step: Cost
    client: Cost
    round: Cost


@dataclass
class StepCounter:
    """A solver that counts its steps."""

    solver: Solver
    steps: list[int] = field(default_factory=list)

    def __call__(self, model: Chain, objective: Objective, job: Job, key: Key) -> DescentResult:
        result = self.solver(model, objective, job, key)
        self.steps.append(result.steps)
        return result


def dataset() -> Dataset:
    """Random images in bytes."""
    draws = torch.Generator().manual_seed(0)
    count = SAMPLES * (CLIENTS + 1)

    def split(size: int) -> Split:
        x = torch.randint(256, (size, *SHAPE), generator=draws, dtype=torch.uint8)
        return Split(x, torch.arange(size) % CLASSES)

    half = (0.5,) * 3
    return Dataset("noise", "image", split(count), split(4 * BATCH), tuple("abcde"), half, half)


def build(norm: str, method: Method) -> Callable[[], Chain]:
    def on_device() -> Chain:
        torch.manual_seed(0)
        chain = residual_chain(SHAPE, CLASSES, (1, 1), (8, 16), make_norm(norm, 2))
        return method.reshaped(chain, Key.root(0)).to(DEVICE)

    return on_device


def total(method: Method, norm: str, clients: int, steps: int) -> tuple[Traffic, int]:
    """What is counted, and the steps of all clients meanwhile."""
    solver = Sgd(batch=BATCH, steps=steps, rule=SGDRule(0.9), clip=10.0)
    augmented = augment.build(parse("pad-crop+flip"))
    parts = np.split(np.arange(SAMPLES * clients), clients)
    observed, counters = _with_counters(method, solver)
    with SimulatedGpu() as gpu:
        federation = Federation(
            observed,
            build(norm, method),
            federate(dataset(), parts, augmented, device=DEVICE),
            solver,
            Key.root(0),
            classes=CLASSES,
        )
        simulation = Simulation(federation, everyone(), InProcess(federation))
        state = init_state(simulation, build_isolated(federation.build))
        turns = _turns(simulation, state)
        next(turns)
        gpu.traffic = Traffic()
        for counter in counters:
            counter.steps.clear()
        next(turns)
    return gpu.traffic, sum(sum(counter.steps) for counter in counters)


def _turns(simulation: Simulation, state: ServerState) -> Iterator[None]:
    """Rounds, or the training after the last round, one at a time."""
    federation = simulation.federation
    if not federation.method.finale:
        strict = replace(simulation, guard=Guard(strict=True))
        for _ in rounds(strict, state, MemoryStore(), until=2):
            yield
    sent = Broadcast("personalise", 0, state.params, state.shared)
    while True:
        for client in range(len(federation.clients)):
            simulation.answer(sent, ClientTask(client))
        yield


def _with_counters(method: Method, solver: Sgd) -> tuple[Method, list[StepCounter]]:
    """The method with solvers of so many steps and small batches, which count them."""
    counters = []

    def counted(phase: Phase) -> Phase:
        own = phase.solver_for(solver)
        if isinstance(own, Sgd):
            own = replace(own, batch=BATCH, steps=solver.steps)
        counters.append(StepCounter(own))
        return replace(phase, solver=counters[-1])

    if method.finale:
        return replace(method, finale=tuple(map(counted, method.finale))), counters
    return replace(method, phases=tuple(map(counted, method.phases))), counters


def counts(method: Method, norm: str = "group") -> Counts:
    """The costs of a step, of a client and of a round, from three runs."""
    base, few = total(method, norm, CLIENTS, STEPS)
    longer, many = total(method, norm, CLIENTS, 2 * STEPS)
    wider, _ = total(method, norm, CLIENTS + 1, STEPS)

    def solved(key: Callable[[Traffic], int]) -> tuple[float, float, float]:
        step = (key(longer) - key(base)) / (many - few)
        client = key(wider) - key(base) - step * few / CLIENTS
        return step, client, key(base) - step * few - client * CLIENTS

    waits, copies = solved(lambda t: t.waits), solved(lambda t: t.copies)
    return Counts(*(Cost(w, c) for w, c in zip(waits, copies, strict=True)))


def evaluation() -> Counts:
    """A batch of an evaluation as a step, and the rest of it as a client."""
    data, method = dataset(), entry("fedavg").make()
    traffic = []
    for size in (2 * BATCH, BATCH):
        with SimulatedGpu() as gpu:
            test = place(data.test, DEVICE)
            batches = EvaluationBatches(test, normaliser(data, device=DEVICE), size)
            chain = build("group", method)()
            gpu.traffic = Traffic()
            # tensors of Python have no inference mode
            with patch.object(torch, "inference_mode", torch.no_grad):
                count_correct(chain, batches, CLASSES)
            traffic.append(gpu.traffic)
    two, four = traffic
    step = Cost((four.waits - two.waits) / 2, (four.copies - two.copies) / 2)
    rest = Cost(two.waits - 2 * step.waits, two.copies - 2 * step.copies)
    return Counts(step, rest, Cost(0, 0))


def count(name: str) -> Counts:
    """The counts of one row of the table."""
    if name == "test batch":
        return evaluation()
    if name == "batch norm":
        return counts(entry("fedavg").make(), "batch")
    return counts(entry(name).make())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(METHODS), help="some of the rows")
    parser.add_argument("--json", type=Path, help="write the counts to this file")
    options = parser.parse_args()
    register()
    results = {}
    for name in options.only.split(","):
        found = count(name)
        results[name] = {
            part: {kind: round(value, 2) for kind, value in cost._asdict().items()}
            for part, cost in ((p, getattr(found, p)) for p in ("step", "client", "round"))
        }
        print(f"{name:15} {json.dumps(results[name])}", flush=True)
    if options.json:
        save(results, options.json)


if __name__ == "__main__":
    main()
