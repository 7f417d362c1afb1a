"""The cost of a training step of each method relative to FedAvg: time, memory and work.

    python -m benchmarks.steps [--repeats N] [--only fedalign] [--json FILE] [--extend]

Each method trains the same client for a few steps, through the same call as in a run, so the
fixed cost of a client is included. The methods take turns on one thread; a ratio is the median
over turns of the ratio to FedAvg in the same turn. One round is run before, so that client and
server have their state, and FedGKD its teacher. Memory is the peak of all tensors in these steps:
weights, gradients, activations, teachers and the batch, but not buffers inside kernels, nor
Python. Exceeding a limit fails the benchmark.

--extend: as many turns again as are stored, added to these. That is the one extension that a claim
about times may have; the result says so, and it is then judged at 99 %.

The suite `fedafa` measures what follows the last round: the client personalises the model for one
epoch, compared with one epoch of fine-tuning. It counts multiply-accumulates, and how many
samples pass each block, forward and backward, per sample of an epoch; printed is the difference
from the base.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.measure import fail, save
from benchmarks.passes import Passes
from fedloom.core.client import answer
from fedloom.core.job import Progress
from fedloom.core.key import Key
from fedloom.core.params import Params
from fedloom.core.request import Broadcast, ClientTask, Work
from fedloom.core.round import rounds
from fedloom.core.simulation import init_state
from fedloom.core.state import MemoryStore
from fedloom.data.dataset import Dataset, Split
from fedloom.diagnostics.cost.dispatch import MemoryTracker
from fedloom.diagnostics.cost.toy_federation import RecordingModelPool
from fedloom.engines.malloc import keep_freed_memory
from fedloom.experiment.prepare import prepare
from fedloom.settings.config import load


class Suite(NamedTuple):
    """A model, how it is trained, and the methods with limits on time relative to the base.

    limits: by method; None is no limit. memory_limits: the same for memory. work: what the client
    does. labels: its number of samples of each class; if empty, it has as many samples of random
    classes as the steps take.
    """

    model: str
    batch: int
    steps: int
    train: dict[str, Any]
    limits: dict[str, float | None]
    memory_limits: dict[str, float]
    repeats: int = 7
    shape: tuple[int, int, int] = (3, 32, 32)
    classes: int = 100
    base: str = "fedavg"
    work: Work = "train"
    labels: tuple[int, ...] = ()


FEDALIGN = {"lr": 0.01, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-4}
FEDMLB = {"lr": 0.1, "weight_decay": 1e-3, "clip": 10.0}
FEDMIX = {"lr": 0.01}
FEDAFA = {"lr": 0.1, "momentum": 0.9, "weight_decay": 5e-4}
PERSONAL = {"ros": None, "crt": None, "fedafa": 6.0, "fedafa(features=local)": 6.0}
# The labels of a client of CIFAR-10-LT, at 0.4 of its size: four batches.
LONG_TAIL = (16, 6, 138, 22, 1, 12, 32, 2, 3, 1)
MIXED = {"naivemix": 1.1, "fedmix": 2.1, "mixup": None}
TAUGHT = {
    "fedmlb": 2.3,
    "benchmarks.naive:fedmlb_by_pathway": None,
    "fedntd": 1.4,
    "kd": 1.4,
    "fedgkd": 1.4,
    "fitnet": None,
}
WARM_UP = 4  # turns that are not counted, in which the heap takes its shape
SUITES = {
    "fedalign": Suite(
        "resnet56", 64, 2, FEDALIGN,
        {"fedprox": 1.05, "moon": 1.75, "mixup": 1.03, "stochdepth": 1.03,
         "gradaug": 2.30, "fedalign": 1.12},
        {"fedalign": 1.10},
    ),
    "fedmlb": Suite("resnet18", 10, 2, FEDMLB, TAUGHT, {}, repeats=9),
    "fedmlb-narrow": Suite("resnet18(width=16)", 10, 8, FEDMLB, TAUGHT, {}, repeats=31),
    "fedmlb-narrow-50": Suite("resnet18(width=16)", 50, 2, FEDMLB, TAUGHT, {}, repeats=31),
    "fedmix-femnist": Suite(
        "lenet5", 10, 100, FEDMIX, MIXED, {}, repeats=21, shape=(1, 28, 28), classes=62
    ),
    "fedmix-cifar10": Suite("vgg", 10, 10, FEDMIX, MIXED, {}, classes=10),
    "fedafa": Suite(
        "resnet32", 64, 4, FEDAFA, PERSONAL, {}, repeats=3, classes=10,
        base="finetune", work="personalise", labels=LONG_TAIL,
    ),
}  # fmt: skip


class MeasuredClient:
    """A client of one method, after a round that creates the state of client and server."""

    def __init__(self, suite: Suite, method: str) -> None:
        train = {**suite.train, "batch": suite.batch, "steps": suite.steps}
        settings = {"method": method, "model": suite.model, "engine": "inprocess", "train": train}
        settings |= {"data": {"clients": 1, "partition": "iid"}, "sample": {"per_round": 1}}
        prepared, store = prepare(load(settings), noise(suite)), MemoryStore()
        simulation = prepared.simulation
        self.federation, self.work = simulation.federation, suite.work
        self.model_pool = RecordingModelPool(simulation.federation.build)
        first_state = init_state(simulation, prepared.model)
        ((self.state, _),) = rounds(simulation, first_state, store, until=1)
        self.task = ClientTask(0, store.recall(0))

    def work_once(self, round: int) -> None:
        """The client's work in that round, from the same weights, as if they had just arrived."""
        shared = {name: _as_received(p) for name, p in self.state.shared.items()}
        sent = Broadcast(self.work, round, _as_received(self.state.params), shared)
        answer(self.federation, self.model_pool, sent, self.task, Progress())

    def seconds(self, round: int) -> float:
        """CPU seconds of this process for one reply, whatever else runs on the machine."""
        started = time.process_time()
        self.work_once(round)
        return time.process_time() - started


def _as_received(params: Params) -> Params:
    """The same tensors as new objects, so that the client loads them as newly arrived ones."""
    return {name: tensor.view_as(tensor) for name, tensor in params.items()}


def noise(suite: Suite) -> Dataset:
    """Colour noise for one client."""
    g = Key.root(0).fold("bench").generator()
    n = sum(suite.labels) or suite.batch * suite.steps
    x = torch.randint(0, 256, (n, *suite.shape), dtype=torch.uint8, generator=g)
    y = torch.randint(0, suite.classes, (n,), generator=g)
    if suite.labels:
        y = torch.arange(suite.classes).repeat_interleave(torch.tensor(suite.labels))
    classes = tuple(map(str, range(suite.classes)))
    train, test, channels = Split(x, y), Split(x[:10], y[:10]), suite.shape[0]
    return Dataset("noise", "image", train, test, classes, (0.5,) * channels, (0.25,) * channels)


def count_work(client: MeasuredClient, round: int) -> tuple[float, Passes]:
    """The peak of the client's tensors in MB, and the work that it does."""
    passes = Passes()
    with passes.watching(client.model_pool.loaded.values()), MemoryTracker() as tensors:
        client.work_once(round)
    held = sum(t.untyped_storage().nbytes() for t in tensors.inputs)
    return float(tensors.peak + held) / 1e6, passes


def measure(suite: Suite, repeats: int) -> dict[str, Any]:
    """The cost of every method, relative to the base."""
    methods, load = [suite.base, *suite.limits], os.getloadavg()[0]  # of other processes
    clients = {method: MeasuredClient(suite, method) for method in methods}
    seconds: dict[str, list[float]] = {method: [] for method in methods}
    for number in range(WARM_UP + repeats):
        for method in methods:
            seconds[method].append(clients[method].seconds(number + 1))
    counts = {method: count_work(clients[method], WARM_UP + repeats + 1) for method in methods}
    rows, (base_mb, base) = {}, counts[suite.base]
    turns = {method: [t / suite.steps for t in seconds[method][WARM_UP:]] for method in methods}
    for method in methods:
        memory, work = counts[method]
        rows[method.rpartition(":")[2]] = {
            **time_figures(turns[method], turns[suite.base]),
            "mark": suite.limits.get(method),
            "memory_mb": memory,
            "memory_ratio": memory / base_mb,
            "memory_mark": suite.memory_limits.get(method),
            "macs_ratio": work.macs / base.macs,
            "more_forward": additional_passes(work.forward, base.forward),
            "more_backward": additional_passes(work.backward, base.backward),
        }
    return {
        "model": suite.model,
        "batch": suite.batch,
        "repeats": repeats,
        "load": load,
        "base": suite.base,
        "work": suite.work,
        "methods": rows,
    }


def time_figures(turns: list[float], base_turns: list[float]) -> dict[str, Any]:
    """Seconds per step of a method, and its ratio to the base in the same turn."""
    ratios = [t / of_base for t, of_base in zip(turns, base_turns, strict=True)]
    return {
        "step_seconds": statistics.median(turns),
        "turn_seconds": turns,
        "ratio": statistics.median(ratios),
    }


def extended(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The result with the turns of an earlier one before its own."""
    turns = {
        method: old["methods"][method]["turn_seconds"] + row["turn_seconds"]
        for method, row in new["methods"].items()
    }
    rows = {
        method: row | time_figures(turns[method], turns[new["base"]])
        for method, row in new["methods"].items()
    }
    repeats, load = old["repeats"] + new["repeats"], max(old["load"], new["load"])
    return new | {"repeats": repeats, "load": load, "extended": True, "methods": rows}


def additional_passes(samples: Counter[str], base: Counter[str]) -> dict[str, float]:
    """Passes through each block per pass of the base, minus that one."""
    return {block: samples[block] / of_base - 1 for block, of_base in base.items()}


def show(name: str, result: dict[str, Any]) -> list[str]:
    """Print a suite and return the limits that it exceeded."""
    exceeded = []
    print(f"{name}: {result['model']}, batch {result['batch']}, {result['repeats']} repeats")
    for method, row in result["methods"].items():
        time_cells = f"{row['step_seconds']:>9.4f} s{row['ratio']:>8.3f}x"
        memory_cells = f"{row['memory_mb']:>9.0f} MB{row['memory_ratio']:>8.3f}x"
        print(f"   {method:<28}{time_cells}{memory_cells}{row['macs_ratio']:>8.3f}x MACs")
        for direction in ("forward", "backward"):
            passes = ", ".join(f"{b} {p:+.2f}" for b, p in row[f"more_{direction}"].items())
            print(f"      additional {direction}: {passes}", flush=True)
        for key, limit in (("ratio", row["mark"]), ("memory_ratio", row["memory_mark"])):
            if limit and row[key] > limit:
                exceeded.append(f"{name} {method} {key} {row[key]:.3f} > {limit}")
    return exceeded


def main() -> None:
    """Measure, print, and fail if a limit is exceeded."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--repeats", type=int, help="turns per method; by default each suite has its own number"
    )
    parser.add_argument("--only", default=",".join(SUITES))
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/steps.json"))
    parser.add_argument("--extend", action="store_true", help="double the stored turns, once")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    results = json.loads(arguments.json.read_text()) if arguments.json.exists() else {}
    exceeded = []
    for name in arguments.only.split(","):
        stored = results.get(name) if arguments.extend else None
        if arguments.extend and (stored is None or stored.get("extended")):
            parser.error(f"{name}: {'it was extended before' if stored else 'nothing is stored'}")
        repeats = stored["repeats"] if stored else arguments.repeats or SUITES[name].repeats
        measured = measure(SUITES[name], repeats)
        results[name] = extended(stored, measured) if stored else measured
        exceeded += show(name, results[name])
        save(results, arguments.json)
    fail(exceeded)


if __name__ == "__main__":
    main()
