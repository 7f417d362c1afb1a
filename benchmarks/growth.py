"""How the cost of a round grows: with the number of clients, with the size of the model, with the size of the cohort.

    python -m benchmarks.growth [--json FILE] [--png FILE]

One thread, in-process, SCAFFOLD, which has a memory for every client; median of some rounds on a made-up crowd. A slope is that of
the straight line through the points in log-log; the last two points decide, since small runs measure only their fixed cost.

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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.contestant import floor, ours
from fedloom.engines.heap import keep_freed_memory
from fedloom.study.assemble import assemble
from fedloom.study.config import load

CLIENTS = (10, 100, 1_000, 10_000, 100_000)
WIDTHS = (320, 1_000, 3_200, 10_000, 32_000, 100_000, 350_000)  # of one hidden layer: 10 thousand to 11 million parameters
COHORTS = (10, 30, 100, 300, 1_000)
AXES = {"clients": "clients, 10 a round", "parameters": "parameters, 4 clients a round", "cohort": "clients a round, of 2,000"}
STEEPEST = 1.1  # a slope above this is worse than linear, beyond what noise explains


def seconds(clients: int, width: int, cohort: int, count: int = 7) -> tuple[float, float, int]:
    """Median seconds of a round of ours and of the bare loop, in turns, and the parameters of the model."""
    settings = {
        "rounds": 1000,
        "engine": "inprocess",
        "method": "scaffold",
        "model": f"mlp(width={width}, layers=1)",
        "data": {"name": f"crowd-{clients}", "clients": 0, "partition": "user"},
        "train": {"batch": 12, "lr": 0.01},
        "sample": {"per_round": cohort},
    }
    study = assemble(load(settings))
    mine, plain = timed(ours(study)), timed(floor(study, 0, 1))
    times = [(next(mine), next(plain)) for _ in range(count + 1)]
    took, bare = (statistics.median(t) for t in zip(*times[1:], strict=True))
    return took, bare, sum(p.numel() for p in study.model.parameters())


def timed(turns: Iterator[None]) -> Iterator[float]:
    """Seconds of round after round; every other turn gets ready for the next."""
    for _ in turns:
        started = time.perf_counter()
        next(turns)
        yield time.perf_counter() - started


def slope(points: list[tuple[float, float]]) -> float:
    """Of the last two points, in log-log."""
    (x0, y0), (x1, y1) = points[-2:]
    return math.log(y1 / y0) / math.log(x1 / x0)


def draw(found: dict[str, Any], path: Path) -> None:
    """The three curves side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.6), dpi=140, layout="constrained")
    for axes, (name, facts) in zip(figure.subplots(1, 3), found.items(), strict=True):
        xs, ys = zip(*facts["points"], strict=True)
        axes.loglog(xs, ys, "o-", color="#0072B2", lw=1.6, ms=5)
        axes.loglog(xs, [ys[-1] * x / xs[-1] for x in xs], ":", color="#999999", lw=1, label="linear")
        axes.set(xlabel=AXES[name], ylabel="seconds a round", title=f"slope at the end {facts['slope']:.2f}")
        axes.grid(color="#e6e6e6", lw=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def main() -> None:
    """Measure, print, draw, and fail where something grows faster than linearly."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/growth.json"))
    parser.add_argument("--png", type=Path, default=Path("docs/img/growth.png"))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # as the command line does
    by_width = [seconds(20, w, 4) for w in WIDTHS]
    points = {
        "clients": [(n, seconds(n, 16, 10)[0]) for n in CLIENTS],
        "parameters": [(size, mine) for mine, _, size in by_width],
        "cohort": [(c, seconds(2_000, 16, c)[0]) for c in COHORTS],
    }
    found: dict[str, Any] = {name: {"points": p, "slope": slope(p)} for name, p in points.items()}
    found["parameters"]["bare_slope"] = slope([(size, bare) for _, bare, size in by_width])
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    asked.json.write_text(json.dumps(found, indent=2) + "\n")
    draw(found, asked.png)
    for name, facts in found.items():
        print(f"{AXES[name]:<34}" + "  ".join(f"{x:g}: {y:.4f}" for x, y in facts["points"]) + f"   slope {facts['slope']:.2f}")
    print(f"bare loop, parameters: slope {found['parameters']['bare_slope']:.2f}")
    steep = [name for name, facts in found.items() if facts["slope"] > STEEPEST]
    if steep:
        sys.exit(f"worse than linear in {', '.join(steep)}")


if __name__ == "__main__":
    main()
