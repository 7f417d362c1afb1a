"""Our engines beside the floor on three workloads: a round of each, in turn, one thread a process, medians of wall time.

    python -m benchmarks.engines [--rounds N] [--only w1,w2,w3] [--json FILE]

floor        the bare loop of benchmarks/overhead.py, one process
floor x 2    two such processes, half of the cohort each; the round lasts until both are done
inprocess, pool    our engines; the pool with two workers

W1: LeNet-5, 100 clients of 100 samples, 10 a round, batch 10. W2: ResNet-8 with group norm, 16 clients of 128 pictures, all a
round, batch 32, 2 epochs. W3: MLP 784-64-10, 10,000 clients of 20 samples, 100 a round, batch 20. Evaluation and checkpoints
are left out. Memory is proportional (PSS), summed over the processes of an engine after its rounds.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from benchmarks.overhead import Bare, coloured
from fedloom.core.key import Key
from fedloom.core.round import begin, rounds
from fedloom.core.state import MemoryStore
from fedloom.data.dataset import Dataset, Split
from fedloom.study.assemble import Study, assemble
from fedloom.study.config import load

BASE = {"rounds": 10_000, "engine": "inprocess", "data": {"partition": "iid"}}
WORK: dict[str, dict[str, Any]] = {
    "w1": {"model": "lenet5", "clients": 100, "per_round": 10, "train": {"lr": 0.01, "batch": 10}},
    "w2": {"model": "resnet8(norm=group)", "clients": 16, "per_round": 16, "train": {"lr": 0.01, "batch": 32, "epochs": 2}},
    "w3": {"model": "mlp(width=64, layers=1)", "clients": 10_000, "per_round": 100, "train": {"lr": 0.01, "batch": 20}},
}
MARKS = {("w1", "pool / floor x 2"): 1.10, ("w2", "pool / floor x 2"): 1.10, ("w1", "inprocess / floor"): 1.05,
         ("w2", "inprocess / floor"): 1.02, ("w3", "inprocess / floor"): 1.15}  # fmt: skip


def data_of(work: str) -> Dataset:
    """Noise of the right shape and size."""
    if work == "w2":
        return coloured()
    n = 200_000 if work == "w3" else 10_000
    g = Key.root(0).fold("bench").generator()
    x, y = torch.randint(0, 256, (n, 1, 28, 28), dtype=torch.uint8, generator=g), torch.randint(0, 10, (n,), generator=g)
    return Dataset("noise", "image", Split(x, y), Split(x[:100], y[:100]), tuple(map(str, range(10))), (0.5,), (0.25,))


def study_of(work: str, **changes: Any) -> Study:
    """The workload on one of our engines."""
    w = WORK[work]
    settings = {**BASE, "model": w["model"], "train": w["train"], "sample": {"per_round": w["per_round"]}}
    settings["data"] = {"clients": w["clients"], "partition": "iid"}
    return assemble(load({**settings, **changes}), data_of(work))


def half(connection: Connection, work: str, which: int) -> None:
    """One of two bare processes: rounds on its half of the cohort, on command."""
    torch.set_num_threads(1)
    study = study_of(work)
    bare, weights = Bare(study), dict(study.model.state_dict())
    connection.send(os.getpid())
    while (number := connection.recv()) is not None:
        cohort = bare.orders(number)[which::2]
        connection.send("ready")
        connection.recv()
        weights = bare.round(weights, cohort)
        connection.send("done")


class Halves:
    """Two bare processes side by side."""

    def __init__(self, work: str) -> None:
        context = multiprocessing.get_context("spawn")
        self.ends = []
        for which in range(2):
            ours, theirs = context.Pipe()
            context.Process(target=half, args=(theirs, work, which), daemon=True).start()
            self.ends.append(ours)
        self.pids = [end.recv() for end in self.ends]

    def round(self, number: int) -> float:
        """Seconds until both are done."""
        for end in self.ends:
            end.send(number)
        for end in self.ends:
            end.recv()
        started = time.perf_counter()
        for end in self.ends:
            end.send("go")
        for end in self.ends:
            end.recv()
        return time.perf_counter() - started

    def close(self) -> None:
        for end in self.ends:
            end.send(None)


def ours(study: Study) -> Iterator[float]:
    """Seconds of round after round."""
    going = rounds(study.loom, begin(study.loom, study.model), MemoryStore(), study.config.rounds)
    while True:
        started = time.perf_counter()
        next(going)
        yield time.perf_counter() - started


def floor(study: Study) -> Iterator[float]:
    """Seconds of round after round of the bare loop."""
    bare, weights, number = Bare(study), dict(study.model.state_dict()), 0
    while True:
        cohort = bare.orders(number)
        started = time.perf_counter()
        weights = bare.round(weights, cohort)
        yield time.perf_counter() - started
        number += 1


def memory(pids: list[int]) -> float:
    """Proportional memory of the processes, in MB."""
    lines = (Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines() for pid in pids)
    return sum(int(line.split()[1]) for text in lines for line in text if line.startswith("Pss:")) / 1000


def measure(work: str, count: int) -> dict[str, Any]:
    """Median seconds a round of every contestant, and the ratios that have marks."""
    halves, pool = Halves(work), study_of(work, engine="pool", workers=2)
    alone = study_of(work)
    exact, piped, plain = ours(alone), ours(pool), floor(alone)
    contestants: dict[str, Callable[[int], float]] = {
        "floor": lambda n: next(plain),
        "floor x 2": halves.round,
        "inprocess": lambda n: next(exact),
        "pool": lambda n: next(piped),
    }
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(count + 2):
        for name, go in contestants.items():
            seconds[name].append(go(number))
    middle = {name: statistics.median(s[2:]) for name, s in seconds.items()}  # the first two rounds warm up
    ratios = {f"{a} / {b}": middle[a] / middle[b] for a, b in (("inprocess", "floor"), ("pool", "floor x 2"), ("pool", "floor"))}
    members = [m.process.pid for m in pool.loom.engine.members]  # type: ignore[attr-defined]
    found = {
        "seconds": middle,
        "ratios": ratios,
        "rounds": count,
        "memory_mb": {"floor x 2": memory(halves.pids), "pool workers": memory(members)},
    }
    halves.close()
    pool.close()
    return found


def main() -> None:
    """Measure, print, and fail where a mark is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="w1,w2,w3")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/engines.json"))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    results = {work: measure(work, asked.rounds) for work in asked.only.split(",")}
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    asked.json.write_text(json.dumps(results, indent=2) + "\n")
    missed = []
    for work, found in results.items():
        print(work, "  ".join(f"{name} {s:.4f} s" for name, s in found["seconds"].items()))
        for name, ratio in found["ratios"].items():
            mark = MARKS.get((work, name))
            print(f"   {name:<20}{ratio:>8.3f}" + (f"   mark {mark:.2f}" if mark else ""))
            missed += [f"{work} {name} {ratio:.3f}"] if mark and ratio > mark else []
    if missed:
        sys.exit("missed: " + "; ".join(missed))


if __name__ == "__main__":
    main()
