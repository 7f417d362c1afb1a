"""What a training step of each method costs beside FedAvg's: interleaved, one thread, medians of neighbours' ratios.

    python -m benchmarks.steps [--repeats N] [--only fedalign] [--json FILE]

Each method plays the same client for a few steps, in turn with the others, through the package's own door; what a client costs
beside its steps is in the figure, as it is in a run. A round was played before, so that client and server have their memories, and
FedGKD its teacher. Memory is the most that tensors fill at once in these steps: weights, gradients, activations, teachers and the
batch; not in it are buffers inside kernels, and Python. Missing a mark fails the run.

The suite `fedafa` asks for what follows the last round instead: the client makes the model its own, in one epoch, beside one epoch
of fine-tuning. Counted are multiply-accumulates, and how many samples go through each block, forward and back, for every sample of
an epoch; printed is what that is beyond the base.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.measure import fail, keep
from benchmarks.passes import Passes
from fedloom.core.client import Broadcast, Task, Work, answer
from fedloom.core.job import Progress
from fedloom.core.key import Key
from fedloom.core.params import Params
from fedloom.core.round import init_state, rounds
from fedloom.core.state import MemoryStore
from fedloom.data.dataset import Dataset, Split
from fedloom.diagnostics.cost.dispatch import Footprint
from fedloom.diagnostics.cost.toy_federation import Shelf
from fedloom.engines.malloc import keep_freed_memory
from fedloom.experiment.prepare import prepare
from fedloom.settings.config import load


class Suite(NamedTuple):
    """A model, how it is trained, and the methods with their marks: time and memory of a step relative to the base's.

    A method whose mark is None is printed only. work: what the client is asked for. labels: its samples of each class; as many as
    the steps take, of any class, if there are none.
    """

    model: str
    batch: int
    steps: int
    train: dict[str, Any]
    marks: dict[str, float | None]
    memory: dict[str, float]
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
LONG_TAIL = (
    16,
    6,
    138,
    22,
    1,
    12,
    32,
    2,
    3,
    1,
)  # as a client of CIFAR-10-LT has them, at 0.4 of its size: four batches
MIXED = {"naivemix": 1.1, "fedmix": 2.1, "mixup": None}
TAUGHT = {
    "fedmlb": 2.3,
    "benchmarks.naive:fedmlb_by_pathway": None,
    "fedntd": 1.4,
    "kd": 1.4,
    "fedgkd": 1.4,
    "fitnet": None,
}
WARM = 4  # visits, in which the heap takes its shape; not counted
SUITES = {
    "fedalign": Suite(
        "resnet56", 64, 2, FEDALIGN,
        {"fedprox": 1.05, "moon": 1.75, "mixup": 1.03, "stochdepth": 1.03, "gradaug": 2.30, "fedalign": 1.12},
        {"fedalign": 1.10},
    ),
    "fedmlb": Suite("resnet18", 10, 2, FEDMLB, TAUGHT, {}, repeats=9),
    "fedmlb-narrow": Suite("resnet18(width=16)", 10, 8, FEDMLB, TAUGHT, {}, repeats=31),
    "fedmlb-narrow-50": Suite("resnet18(width=16)", 50, 2, FEDMLB, TAUGHT, {}, repeats=31),
    "fedmix-femnist": Suite("lenet5", 10, 100, FEDMIX, MIXED, {}, repeats=21, shape=(1, 28, 28), classes=62),
    "fedmix-cifar10": Suite("vgg", 10, 10, FEDMIX, MIXED, {}, classes=10),
    "fedafa": Suite(
        "resnet32", 64, 4, FEDAFA, PERSONAL, {}, repeats=3, classes=10, base="finetune", work="personalise", labels=LONG_TAIL
    ),
}  # fmt: skip


class Player:
    """One method at its client, warmed up by a round, so that both sides have memories."""

    def __init__(self, suite: Suite, method: str) -> None:
        train = {**suite.train, "batch": suite.batch, "steps": suite.steps}
        settings = {"method": method, "model": suite.model, "engine": "inprocess", "train": train}
        settings |= {"data": {"clients": 1, "partition": "iid"}, "sample": {"per_round": 1}}
        prepared, store = prepare(load(settings), noise(suite)), MemoryStore()
        self.federation, self.model_pool, self.work = (
            prepared.simulation.federation,
            Shelf(prepared.simulation.federation.build),
            suite.work,
        )
        ((self.state, _),) = rounds(
            prepared.simulation, init_state(prepared.simulation, prepared.model), store, until=1
        )
        self.task = Task(0, store.recall(0))

    def play(self, round: int) -> None:
        """The client's round of that number, from the same weights, as if they had just arrived: it is the first to load them."""
        shared = {word: _arrived(p) for word, p in self.state.shared.items()}
        sent = Broadcast(self.work, round, _arrived(self.state.params), shared)
        answer(self.federation, self.model_pool, sent, self.task, Progress())

    def seconds(self, round: int) -> float:
        """The time of one reply, as this process has computed: others on the machine do not count."""
        started = time.process_time()
        self.play(round)
        return time.process_time() - started


def _arrived(params: Params) -> Params:
    return {n: t.view_as(t) for n, t in params.items()}


def noise(suite: Suite) -> Dataset:
    """Coloured noise, one client's worth."""
    g = Key.root(0).fold("bench").generator()
    n = sum(suite.labels) or suite.batch * suite.steps
    x = torch.randint(0, 256, (n, *suite.shape), dtype=torch.uint8, generator=g)
    y = torch.randint(0, suite.classes, (n,), generator=g)
    if suite.labels:
        y = torch.arange(suite.classes).repeat_interleave(torch.tensor(suite.labels))
    classes = tuple(map(str, range(suite.classes)))
    return Dataset(
        "noise",
        "image",
        Split(x, y),
        Split(x[:10], y[:10]),
        classes,
        (0.5,) * suite.shape[0],
        (0.25,) * suite.shape[0],
    )


def examined(player: Player, round: int) -> tuple[float, Passes]:
    """MB of the tensors that are alive at once while the client plays, and the work that it does."""
    passes = Passes()
    with passes.watching(player.model_pool.loaded.values()), Footprint() as tensors:
        player.play(round)
    return float(
        tensors.peak + sum(t.untyped_storage().nbytes() for t in tensors.held)
    ) / 1e6, passes


def measure(suite: Suite, repeats: int) -> dict[str, Any]:
    """Every method beside the base."""
    methods = [suite.base, *suite.marks]
    players = {m: Player(suite, m) for m in methods}
    seconds: dict[str, list[float]] = {m: [] for m in methods}
    for number in range(WARM + repeats):
        for m in methods:
            seconds[m].append(players[m].seconds(number + 1))
    found = {m: examined(players[m], WARM + repeats + 1) for m in methods}
    rows, (base_mb, base) = {}, found[suite.base]
    for m in methods:
        counted = seconds[m][WARM:]
        ratios = [a / b for a, b in zip(counted, seconds[suite.base][WARM:], strict=True)]
        memory, work = found[m]
        rows[m.rpartition(":")[2]] = {
            "step_seconds": statistics.median(counted) / suite.steps,
            "ratio": statistics.median(ratios),
            "mark": suite.marks.get(m),
            "memory_mb": memory,
            "memory_ratio": memory / base_mb,
            "memory_mark": suite.memory.get(m),
            "macs_ratio": work.macs / base.macs,
            "more_forward": beyond(work.forward, base.forward),
            "more_backward": beyond(work.backward, base.backward),
        }
    return {
        "model": suite.model,
        "batch": suite.batch,
        "repeats": repeats,
        "base": suite.base,
        "work": suite.work,
        "methods": rows,
    }


def beyond(found: Counter[str], base: Counter[str]) -> dict[str, float]:
    """Passes through each block for one of the base, without that one."""
    return {name: found[name] / samples - 1 for name, samples in base.items()}


def show(name: str, found: dict[str, Any]) -> list[str]:
    """Print a suite; the marks that it missed."""
    missed = []
    print(f"{name}: {found['model']}, batch {found['batch']}, {found['repeats']} repeats")
    for method, row in found["methods"].items():
        seconds, ratio, space, more = (
            row[n] for n in ("step_seconds", "ratio", "memory_mb", "memory_ratio")
        )
        print(
            f"   {method:<28}{seconds:>9.4f} s{ratio:>8.3f}x{space:>9.0f} MB{more:>8.3f}x{row['macs_ratio']:>8.3f}x MACs"
        )
        for way in ("forward", "backward"):
            print(
                f"      more {way}: "
                + ", ".join(f"{n} {p:+.2f}" for n, p in row[f"more_{way}"].items()),
                flush=True,
            )
        for what, mark in (("ratio", row["mark"]), ("memory_ratio", row["memory_mark"])):
            missed += (
                [f"{name} {method} {what} {row[what]:.3f} > {mark}"]
                if mark and row[what] > mark
                else []
            )
    return missed


def main() -> None:
    """Measure, print, and fail where a mark is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--repeats", type=int, help="of every suite; each has its own number otherwise"
    )
    parser.add_argument("--only", default=",".join(SUITES))
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/steps.json"))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    known, missed = json.loads(asked.json.read_text()) if asked.json.exists() else {}, []
    for name in asked.only.split(","):
        known[name] = measure(SUITES[name], asked.repeats or SUITES[name].repeats)
        missed += show(name, known[name])
        keep(known, asked.json)
    fail(missed)


if __name__ == "__main__":
    main()
