"""What clients side by side cost: the vectorised engine and the in-process one against the bare loop, interleaved, one thread.

    python -m benchmarks.vectorised [--rounds N] [--json FILE]

All three do the same gradient steps (see benchmarks.overhead). The vectorised engine is built, and has proved itself, before the
clock starts; how long that takes is told apart. Missing a mark fails the run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.overhead import LENET, Bare
from fedloom.core.key import Key
from fedloom.core.round import Engine, begin, rounds
from fedloom.core.state import MemoryStore
from fedloom.data.dataset import Dataset, Split
from fedloom.engines.inprocess import InProcess
from fedloom.engines.vectorised import Vectorised
from fedloom.study.assemble import Study, assemble
from fedloom.study.config import load

MLP = {
    "rounds": 10_000,
    "model": "mlp(layers=1, width=64)",
    "data": {"clients": 10_000, "partition": "iid"},
    "train": {"lr": 0.01, "batch": 20},
    "sample": {"per_round": 100},
}
NAMES = ("bare", "in-process", "vectorised")


def grey(samples: int) -> Dataset:
    """Grey noise of MNIST's shape."""
    g = Key.root(0).fold("bench").generator()
    x = torch.randint(0, 256, (samples, 1, 28, 28), dtype=torch.uint8, generator=g)
    y = torch.randint(0, 10, (samples,), generator=g)
    return Dataset("noise", "image", Split(x, y), Split(x[:10], y[:10]), tuple(map(str, range(10))), (0.5,), (0.25,))


def alone(study: Study, count: int) -> Iterator[dict[str, Tensor]]:
    """The bare loop, round by round; the order of its samples is drawn before the clock starts."""
    bare, weights = Bare(study), {n: t.detach().clone() for n, t in study.model.state_dict().items()}
    orders = [bare.orders(number) for number in range(count)]
    yield weights
    for order in orders:
        weights = bare.round(weights, order)
        yield weights


def through(study: Study, engine: Engine) -> Iterator[dict[str, Tensor]]:
    """Our rounds on that engine."""
    loom = replace(study.loom, engine=engine)
    return (state.params for state, _ in rounds(loom, begin(loom, study.model), MemoryStore(), study.config.rounds))


def measure(settings: dict, dataset: Dataset, count: int) -> dict[str, float]:
    """Median seconds a round of each, and their ratios to the bare loop; the weights must agree."""
    study = assemble(load({**settings, "engine": "inprocess"}), dataset)
    federation, started = study.loom.federation, time.perf_counter()
    engine = Vectorised(federation, InProcess(federation))
    built = time.perf_counter() - started
    if engine.why_not is not None:
        sys.exit(engine.why_not)
    bare = alone(study, count + 2)
    next(bare)
    runs = dict(zip(NAMES, (bare, through(study, InProcess(federation)), through(study, engine)), strict=True))
    seconds: dict[str, list[float]] = {name: [] for name in NAMES}
    worst = 0.0
    for number in range(count + 2):
        weights = {}
        for name, run in runs.items():
            started = time.perf_counter()
            weights[name] = next(run)
            seconds[name].append(time.perf_counter() - started)
        if number == 1:  # later, rounding has grown
            worst = max(float((weights["vectorised"][n] - t).abs().max()) for n, t in weights["in-process"].items())
    if worst > 1e-5:
        sys.exit(f"the engines did not do the same steps: weights differ by {worst:.2e} after two rounds")
    medians = {name: statistics.median(kept[2:]) for name, kept in seconds.items()}
    ratios = {f"{name}_ratio": medians[name] / medians["bare"] for name in NAMES[1:]}
    facts = {"build_seconds": built, "largest_weight_difference": worst, "rounds": count, "load": os.getloadavg()[0]}
    return {f"{name}_seconds": s for name, s in medians.items()} | ratios | facts


def main() -> None:
    """Measure, print, and fail where a mark is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30, help="rounds of each to time")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/vectorised.json"))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    mlp = measure(MLP, grey(200_000), asked.rounds)
    lenet = measure(LENET, grey(10_000), asked.rounds)
    results = {"mlp, 100 clients x 20": mlp, "lenet5, 10 clients x 100, batch 10": lenet}
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    asked.json.write_text(json.dumps(results, indent=2) + "\n")
    print(f"{'work':<38}{'bare, s':>10}{'in-process':>12}{'vectorised':>12}{'load':>7}")
    for name, r in results.items():
        print(f"{name:<38}{r['bare_seconds']:>10.4f}{r['in-process_ratio']:>12.2f}{r['vectorised_ratio']:>12.2f}{r['load']:>7.1f}")
    if mlp["vectorised_ratio"] > 0.45 or lenet["vectorised_ratio"] > lenet["in-process_ratio"]:
        sys.exit("a mark was missed: 0.45 of the bare loop for the mlp, and the in-process engine for lenet5")


if __name__ == "__main__":
    main()
