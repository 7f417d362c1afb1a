"""How the cost of a round grows: with the number of clients, with the size of the model, with the size of the cohort.

    python -m benchmarks.growth [--json FILE] [--png FILE]

One thread, in-process, SCAFFOLD, which has a memory for every client, on a made-up crowd. A slope is that of the straight line
through the points in log-log; the last two points decide, since small runs measure only their fixed cost.

A figure is a median of rounds, in seconds of the processor spent by this process: on one thread that is the time of a round on an
idle machine, and what neighbours take of the core is not in it. The sizes are visited in turns, so that a machine that becomes
faster or slower does so for all of them, and of two rounds in a row the second is timed: the first finds another size's numbers
in the caches. The learning rate falls with the width. At a fixed one the first step of a wide layer saturates the softmax, and
the gradients fill with subnormal numbers, on which a product takes up to twenty times as long.

With the size of the model the bare loop of benchmarks/overhead.py is measured beside ours, in turns: its slope tells what the
machine's caches have to do with it, and excuses nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.contestant import floor, ours
from fedloom.engines.malloc import keep_freed_memory
from fedloom.experiment.prepare import PreparedRun, prepare
from fedloom.settings.config import load

CLIENTS = (10, 100, 1_000, 10_000, 100_000)
WIDTHS = (
    320,
    1_000,
    3_200,
    10_000,
    32_000,
    100_000,
    350_000,
)  # of one hidden layer: 10 thousand to 11 million parameters
COHORTS = (10, 30, 100, 300, 1_000)
AXES = {
    "clients": "clients, 10 a round",
    "parameters": "parameters, 4 clients a round",
    "cohort": "clients a round, of 2,000",
}
STEEPEST = 1.1  # a slope above this is worse than linear, beyond what noise explains
FIRST, VISITS = (
    3,
    15,
)  # visits of each size: those in which the clients' first memories are made, and those that count


def study_of(clients: int, width: int, cohort: int) -> PreparedRun:
    """A crowd of so many clients with one hidden layer, of whom a cohort takes part in each round."""
    settings = {
        "rounds": 1000,
        "engine": "inprocess",
        "method": "scaffold",
        "model": f"mlp(width={width}, layers=1)",
        "data": {"name": f"crowd-{clients}", "clients": 0, "partition": "user"},
        "train": {"batch": 12, "lr": 0.1 / width},
        "sample": {"per_round": cohort},
    }
    return prepare(load(settings))


def medians(contestants: Sequence[Iterator[None]]) -> list[float]:
    """Seconds of a round of each, visited in turns."""
    clocks = [timed(turns) for turns in contestants]
    visits = [[second(clock) for clock in clocks] for _ in range(FIRST + VISITS)]
    return [statistics.median(times) for times in zip(*visits[FIRST:], strict=True)]


def timed(turns: Iterator[None]) -> Iterator[float]:
    """Seconds of round after round; every other turn gets ready for the next."""
    for _ in turns:
        started = time.process_time()
        next(turns)
        yield time.process_time() - started


def second(clock: Iterator[float]) -> float:
    """The second of two rounds in a row."""
    next(clock)
    return next(clock)


def slope(points: list[tuple[float, float]]) -> float:
    """Of the last two points, in log-log."""
    (x0, y0), (x1, y1) = points[-2:]
    return math.log(y1 / y0) / math.log(x1 / x0)


def measure() -> dict[str, Any]:
    """Points and slope along every axis."""
    by_clients = medians([ours(study_of(n, 16, 10)) for n in CLIENTS])
    by_cohort = medians([ours(study_of(2_000, 16, c)) for c in COHORTS])
    studies = [study_of(20, w, 4) for w in WIDTHS]
    sizes = [sum(p.numel() for p in prepared.model.parameters()) for prepared in studies]
    both = medians([ours(s) for s in studies] + [floor(s, 0, 1) for s in studies])
    by_width, bare = both[: len(sizes)], both[len(sizes) :]
    axes = {
        "clients": (CLIENTS, by_clients),
        "parameters": (sizes, by_width),
        "cohort": (COHORTS, by_cohort),
    }
    points = {name: list(zip(xs, ys, strict=True)) for name, (xs, ys) in axes.items()}
    found: dict[str, Any] = {name: {"points": p, "slope": slope(p)} for name, p in points.items()}
    found["parameters"]["bare_slope"] = slope(list(zip(sizes, bare, strict=True)))
    return found


def draw(found: dict[str, Any], path: Path) -> None:
    """The three curves side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.6), dpi=140, layout="constrained")
    for axes, (name, facts) in zip(figure.subplots(1, 3), found.items(), strict=True):
        xs, ys = zip(*facts["points"], strict=True)
        axes.loglog(xs, ys, "o-", color="#0072B2", lw=1.6, ms=5)
        axes.loglog(
            xs, [ys[-1] * x / xs[-1] for x in xs], ":", color="#999999", lw=1, label="linear"
        )
        axes.set(
            xlabel=AXES[name],
            ylabel="seconds a round",
            title=f"slope at the end {facts['slope']:.2f}",
        )
        axes.grid(color="#e6e6e6", lw=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def main() -> None:
    """Measure, print, draw, and fail where something grows faster than linearly."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/growth.json"))
    parser.add_argument("--png", type=Path, default=Path("docs/img/growth.png"))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # as the command line does
    found = measure()
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    asked.json.write_text(json.dumps(found, indent=2) + "\n")
    draw(found, asked.png)
    for name, facts in found.items():
        print(
            f"{AXES[name]:<34}"
            + "  ".join(f"{x:g}: {y:.4f}" for x, y in facts["points"])
            + f"   slope {facts['slope']:.2f}"
        )
    print(f"bare loop, parameters: slope {found['parameters']['bare_slope']:.2f}")
    steep = [name for name, facts in found.items() if facts["slope"] > STEEPEST]
    if steep:
        sys.exit(f"worse than linear in {', '.join(steep)}")


if __name__ == "__main__":
    main()
