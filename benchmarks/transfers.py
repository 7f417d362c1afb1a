"""How often a method would wait for a GPU, and copy to or from it: counted on a simulated one.

    python -m benchmarks.transfers [--only fedavg,m2m] [--json FILE]

Every method runs three rounds on a small residual net with augmented images, on the device of
benchmarks/simulated_gpu.py. The third round is counted, with all memories in place; of a method
that trains after the last round, that training. Clients with more steps and runs with more clients
show what a step, a client and a round cost:

    total(clients, steps) = round + clients * client + steps * step

A copy that need not be waited for counts as a copy only. "test batch" is one batch of an
evaluation, "batch norm" FedAvg on a net with batch norm, "vectorised" FedProx on that engine.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from torch import nn

from benchmarks.measure import save
from benchmarks.simulated_gpu import DEVICE, SimulatedGpu, Traffic, register
from fedloom.core.chain import Chain
from fedloom.core.federation import TEST_PIECES, Federation
from fedloom.core.guard import Guard
from fedloom.core.job import Job, build_isolated
from fedloom.core.key import Key
from fedloom.core.method import Method
from fedloom.core.request import Broadcast, ClientTask, EvaluationTask
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
from fedloom.engines.vectorised import Vectorised
from fedloom.methods.registry import entry, names
from fedloom.models.layers import make_norm
from fedloom.models.residual import residual_chain

CLASSES, SHAPE, BATCH, SAMPLES = 5, (3, 8, 8), 8, 128
CLIENTS, WARM_UP = 2, 2
LONGER_WARM_UP = {"gradaug": 12}  # rounds until it has met all its sub-networks
METHODS = (*names(), "batch norm", "vectorised", "test batch")


@dataclass(frozen=True)
class Counts:
    """What a method costs for each step, each client and each round."""

    step: Traffic
    client: Traffic
    round: Traffic


@dataclass
class UnequalSteps:
    """A solver that makes one step at first and, once it counts, two or four, by client.

    The difference between clients with two and with four steps gives the cost of a step.
    """

    solver: Solver
    gpu: SimulatedGpu
    counts: bool = False
    steps: list[int] = field(default_factory=list)
    traffic: list[Traffic] = field(default_factory=list)

    def __call__(self, model: Chain, objective: Objective, job: Job, key: Key) -> DescentResult:
        steps = (2 if job.client % 2 == 0 else 4) if self.counts else 1
        solver = self.solver
        if isinstance(solver, Sgd):
            solver = replace(solver, batch=BATCH, steps=steps)
        before = replace(self.gpu.traffic)
        result = solver(model, objective, job, key)
        if self.counts:
            self.steps.append(result.steps)
            self.traffic.append(self.gpu.traffic - before)
        return result

    @property
    def step(self) -> Traffic:
        """What a step costs, from the first two clients."""
        few, many = self.traffic[:2]
        return (many - few) / (self.steps[1] - self.steps[0])


def dataset() -> Dataset:
    """Random images in bytes."""
    draws = torch.Generator().manual_seed(0)
    count = SAMPLES * (CLIENTS + 1)
    frequent_to_rare = torch.arange(CLASSES).repeat_interleave(torch.tensor([8, 4, 2, 1, 1]))

    def split(size: int) -> Split:
        x = torch.randint(256, (size, *SHAPE), generator=draws, dtype=torch.uint8)
        return Split(x, frequent_to_rare[torch.arange(size) % 16])

    half = (0.5,) * 3
    return Dataset(
        "noise", "image", split(count), split(TEST_PIECES * BATCH), tuple("abcde"), half, half
    )


def build(norm: str, method: Method, device: str = DEVICE) -> Callable[[], Chain]:
    def on_device() -> Chain:
        torch.manual_seed(0)
        chain = residual_chain(SHAPE, CLASSES, (1, 1), (16, 16), make_norm(norm, 2))
        return method.reshaped(chain, Key.root(0)).to(device)

    return on_device


def total(method: Method, norm: str, clients: int) -> tuple[Traffic, Traffic]:
    """The traffic without the steps, and what a step costs on average over the phases."""
    augmented = augment.build(parse("pad-crop+flip"))
    parts = np.split(np.arange(SAMPLES * clients), clients)
    with SimulatedGpu() as gpu:
        observed, solvers = _observed(method, gpu)
        federation = Federation(
            observed,
            build(norm, method),
            federate(dataset(), parts, augmented, device=DEVICE),
            Sgd(),
            Key.root(0),
            classes=CLASSES,
        )
        simulation = Simulation(federation, everyone(), InProcess(federation))
        turns = _turns(simulation, init_state(simulation, build_isolated(federation.build)))
        for _ in range(LONGER_WARM_UP.get(method.name, WARM_UP)):
            next(turns)
        gpu.traffic = Traffic()
        for solver in solvers:
            solver.counts = True
        next(turns)
    rest = gpu.traffic
    for solver in solvers:
        rest = rest - solver.step * sum(solver.steps)
    return rest, sum((solver.step for solver in solvers), Traffic()) / len(solvers)


def _observed(method: Method, gpu: SimulatedGpu) -> tuple[Method, list[UnequalSteps]]:
    """The method with solvers that count their steps."""
    run = Sgd(batch=BATCH, rule=SGDRule(0.9), clip=10.0)
    trained = method.finale or method.phases
    solvers = [UnequalSteps(phase.solver_for(run), gpu) for phase in trained]
    phases = tuple(replace(p, solver=s) for p, s in zip(trained, solvers, strict=True))
    return replace(method, **{"finale" if method.finale else "phases": phases}), solvers


def _turns(simulation: Simulation, state: ServerState) -> Iterator[None]:
    """Rounds, or the training after the last round, one at a time."""
    federation = simulation.federation
    if not federation.method.finale:
        strict = replace(simulation, guard=Guard(strict=True))
        for _ in rounds(strict, state, MemoryStore(), until=99):
            yield
    sent = Broadcast("personalise", 0, state.params, state.shared)
    while True:
        for client in range(len(federation.clients)):
            simulation.answer(sent, ClientTask(client))
        yield


def counts(method: Method, norm: str = "group") -> Counts:
    """The costs of a step, of a client and of a round."""
    rest, step = total(method, norm, CLIENTS)
    wider, _ = total(method, norm, CLIENTS + 1)
    client = wider - rest
    return Counts(step, client, rest - client * CLIENTS)


def vectorised() -> Counts:
    """FedProx on the vectorised engine; a step is that of all clients."""

    def linear() -> Chain:
        torch.manual_seed(0)
        return Chain({"flat": nn.Flatten(), "head": nn.Linear(192, CLASSES)}).to(DEVICE)

    def traffic(clients: int, steps: int) -> Traffic:
        parts = np.split(np.arange(SAMPLES * clients), clients)
        solver = Sgd(batch=BATCH, steps=steps)
        with SimulatedGpu() as gpu:
            data = federate(dataset(), parts, device=DEVICE)
            method = entry("fedprox").make()
            federation = Federation(method, linear, data, solver, Key.root(0), classes=CLASSES)
            engine = Vectorised(federation, InProcess(federation))
            sent = Broadcast("train", 0, linear().state_dict())
            for _ in range(2):
                gpu.traffic = Traffic()
                for _ in engine.map(sent, map(ClientTask, range(clients))):
                    pass
        assert engine.why_not is None, engine.why_not
        return gpu.traffic

    base = traffic(CLIENTS, 2)
    step, client = (traffic(CLIENTS, 4) - base) / 2, traffic(CLIENTS + 1, 2) - base
    return Counts(step, client, base - step * 2 - client * CLIENTS)


def evaluation() -> Counts:
    """A test batch counted as a step, and the rest of a piece of the test data as a client."""
    data, method = dataset(), entry("fedavg").make()
    traffic = []
    for size in (BATCH, BATCH // 2):  # a piece of the test data is one batch, or two
        with SimulatedGpu() as gpu, patch.object(torch, "inference_mode", torch.no_grad):
            # tensor subclasses written in Python do not support inference mode
            normalise = normaliser(data, device=DEVICE)
            test = EvaluationBatches(place(data.test, DEVICE), normalise, size)
            federation = Federation(
                method, build("group", method), (), Sgd(), Key.root(0), test, CLASSES
            )
            engine, sent = (
                InProcess(federation),
                Broadcast("evaluate", 0, federation.build().state_dict()),
            )
            for _ in range(2):
                gpu.traffic = Traffic()
                for _ in engine.map(sent, map(EvaluationTask, range(TEST_PIECES))):
                    pass
            traffic.append(gpu.traffic / TEST_PIECES)
    one, two = traffic
    return Counts(two - one, one - (two - one), Traffic())


def count(name: str) -> Counts:
    """The counts of one row of the table."""
    if name == "test batch":
        return evaluation()
    if name == "vectorised":
        return vectorised()
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
            part: {kind: round(value, 2) for kind, value in asdict(cost).items()}
            for part, cost in ((p, getattr(found, p)) for p in ("step", "client", "round"))
        }
        print(f"{name:15} {json.dumps(results[name])}", flush=True)
    if options.json:
        save(results, options.json)


if __name__ == "__main__":
    main()
