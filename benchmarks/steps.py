"""What a training step of each method costs beside FedAvg's: interleaved, one thread, medians of neighbours' ratios.

    python -m benchmarks.steps [--repeats N] [--only fedalign] [--json FILE]

Each method plays the same client for a few steps, in turn with the others, through the package's own door; what a client costs
beside its steps is in the figure, as it is in a run. The client has played a round before, so that memories are there. Memory is
the most that tensors fill at once in these steps: weights, gradients, activations, teachers and the batch; not in it are buffers
inside kernels, and Python. Missing a mark fails the run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch

from fedloom.core.client import Broadcast, Task, answer
from fedloom.core.job import Bench, Where
from fedloom.core.key import Key
from fedloom.data.dataset import Dataset, Split
from fedloom.diagnostics.cost_modes import Footprint
from fedloom.engines.heap import keep_freed_memory
from fedloom.study.assemble import assemble
from fedloom.study.config import load


class Suite(NamedTuple):
    """A model, its batch, and the methods with their marks: time and memory of a step relative to FedAvg's."""

    model: str
    batch: int
    steps: int
    marks: dict[str, float]
    memory: dict[str, float]
    shape: tuple[int, int, int] = (3, 32, 32)
    classes: int = 100


SUITES = {
    "fedalign": Suite(
        "resnet56", 64, 2,
        {"fedprox": 1.05, "moon": 1.75, "mixup": 1.03, "stochdepth": 1.03, "gradaug": 2.30, "fedalign": 1.12},
        {"fedalign": 1.10},
    ),
}  # fmt: skip


class Player:
    """One method at its client, warmed up by a round, so that it has memories."""

    def __init__(self, suite: Suite, method: str) -> None:
        train = {"lr": 0.01, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-4, "batch": suite.batch, "steps": suite.steps}
        settings = {"method": method, "model": suite.model, "engine": "inprocess", "train": train}
        settings |= {"data": {"clients": 1, "partition": "iid"}, "sample": {"per_round": 1}}
        study = assemble(load(settings), noise(suite))
        self.federation = study.loom.federation
        self.bench, self.params = Bench(self.federation.build), dict(study.model.state_dict())
        self.mine: Any = {}
        self.mine = self.play(0).mine

    def play(self, round: int) -> Any:
        """The client's reply."""
        return answer(self.federation, self.bench, Broadcast("train", round, self.params), Task(0, self.mine), Where())

    def seconds(self, round: int) -> float:
        """The time of one reply."""
        started = time.perf_counter()
        self.play(round)
        return time.perf_counter() - started


def noise(suite: Suite) -> Dataset:
    """Coloured noise, one client's worth."""
    g, n = Key.root(0).fold("bench").generator(), suite.batch * suite.steps
    x = torch.randint(0, 256, (n, *suite.shape), dtype=torch.uint8, generator=g)
    y = torch.randint(0, suite.classes, (n,), generator=g)
    classes = tuple(map(str, range(suite.classes)))
    return Dataset("noise", "image", Split(x, y), Split(x[:10], y[:10]), classes, (0.5,) * 3, (0.25,) * 3)


def peak(player: Player, round: int) -> float:
    """MB of the tensors that are alive at once while the client plays."""
    with Footprint() as tensors:
        player.play(round)
    return (tensors.peak + sum(t.untyped_storage().nbytes() for t in tensors.held)) / 1e6


def measure(suite: Suite, repeats: int) -> dict[str, Any]:
    """Every method beside FedAvg."""
    methods = ["fedavg", *suite.marks]
    players = {m: Player(suite, m) for m in methods}
    seconds: dict[str, list[float]] = {m: [] for m in methods}
    for number in range(repeats + 1):
        for m in methods:
            seconds[m].append(players[m].seconds(number + 1))
    memory = {m: peak(players[m], repeats + 2) for m in methods}
    rows = {}
    for m in methods:
        ratios = [a / b for a, b in zip(seconds[m][1:], seconds["fedavg"][1:], strict=True)]  # the first one warms up
        rows[m] = {
            "step_seconds": statistics.median(seconds[m][1:]) / suite.steps,
            "ratio": statistics.median(ratios),
            "mark": suite.marks.get(m),
            "memory_mb": memory[m],
            "memory_ratio": memory[m] / memory["fedavg"],
            "memory_mark": suite.memory.get(m),
        }
    return {"model": suite.model, "batch": suite.batch, "repeats": repeats, "methods": rows}


def main() -> None:
    """Measure, print, and fail where a mark is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--only", default=",".join(SUITES))
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/steps.json"))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    results = {name: measure(SUITES[name], asked.repeats) for name in asked.only.split(",")}
    known = json.loads(asked.json.read_text()) if asked.json.exists() else {}
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    asked.json.write_text(json.dumps({**known, **results}, indent=2) + "\n")
    missed = []
    for name, found in results.items():
        print(f"{name}: {found['model']}, batch {found['batch']}, {found['repeats']} repeats")
        for method, row in found["methods"].items():
            seconds, ratio, space, more = (row[n] for n in ("step_seconds", "ratio", "memory_mb", "memory_ratio"))
            print(f"   {method:<28}{seconds:>9.4f} s{ratio:>8.3f}x{space:>9.0f} MB{more:>8.3f}x")
            for what in ("ratio", "memory_ratio"):
                mark = row["mark" if what == "ratio" else "memory_mark"]
                missed += [f"{name} {method} {what} {row[what]:.3f} > {mark}"] if mark and row[what] > mark else []
    if missed:
        sys.exit("missed: " + "; ".join(missed))


if __name__ == "__main__":
    main()
