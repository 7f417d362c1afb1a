"""How the cost of a round grows with the number of clients, the model's size and the cohort's size.

    python -m benchmarks.growth [--json FILE] [--png FILE]

In-process on one thread, SCAFFOLD, which keeps a state for every client, on synthetic clients.
The slope is that of the line through the last two points in a log-log plot, since small runs
measure only their fixed cost.

Each time is a median over rounds of the CPU time of this process: on one thread that is the time
of a round on an idle machine, without what other processes take of the core. The sizes take
turns, so that a machine that speeds up or slows down affects all of them. Of two consecutive
rounds the second is timed, since the first finds another size's data in the caches. The learning
rate falls with the width: at a fixed one the first step of a wide layer saturates the softmax,
and the gradients fill with subnormal numbers, which take up to twenty times as long to multiply.

For the size of the model the plain loop of benchmarks/overhead.py is measured in alternation with
ours: its slope shows the effect of the machine's caches. It does not change the limit.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.contestant import our_turns, plain_turns
from benchmarks.measure import save
from fedloom.engines.malloc import keep_freed_memory
from fedloom.experiment.prepare import PreparedRun, prepare
from fedloom.settings.config import load

CLIENTS = (10, 100, 1_000, 10_000, 100_000)
# Widths of one hidden layer: 10 thousand to 11 million parameters.
WIDTHS = (320, 1_000, 3_200, 10_000, 32_000, 100_000, 350_000)
COHORTS = (10, 30, 100, 300, 1_000)
AXES = {
    "clients": "clients, 10 per round",
    "parameters": "parameters, 4 clients per round",
    "cohort": "clients per round, of 2,000",
}
MAX_SLOPE = 1.1  # a larger slope is worse than linear, by more than noise explains
WARM_UP = 3  # turns of each size in which the clients' first states are created; not counted
TURNS = 15  # turns of each size that are counted


def prepare_size(clients: int, width: int, cohort: int) -> PreparedRun:
    """A run with that many clients, width of the one hidden layer, and clients per round."""
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
    """Median seconds per round of each contestant; they take turns."""
    clocks = [timed(turns) for turns in contestants]
    times = [[second(clock) for clock in clocks] for _ in range(WARM_UP + TURNS)]
    return [statistics.median(of_one) for of_one in zip(*times[WARM_UP:], strict=True)]


def timed(turns: Iterator[None]) -> Iterator[float]:
    """Seconds of one round after the other; every other turn prepares the next round."""
    for _ in turns:
        started = time.process_time()
        next(turns)
        yield time.process_time() - started


def second(clock: Iterator[float]) -> float:
    """The time of the second of two consecutive rounds."""
    next(clock)
    return next(clock)


def slope(points: list[tuple[float, float]]) -> float:
    """The slope through the last two points, in log-log."""
    (x0, y0), (x1, y1) = points[-2:]
    return math.log(y1 / y0) / math.log(x1 / x0)


def measure() -> dict[str, Any]:
    """Points and slope for each axis."""
    by_clients = medians([our_turns(prepare_size(n, 16, 10)) for n in CLIENTS])
    by_cohort = medians([our_turns(prepare_size(2_000, 16, c)) for c in COHORTS])
    runs = [prepare_size(20, width, 4) for width in WIDTHS]
    sizes = [sum(p.numel() for p in run.model.parameters()) for run in runs]
    both = medians([our_turns(run) for run in runs] + [plain_turns(run, 0, 1) for run in runs])
    by_width, plain = both[: len(sizes)], both[len(sizes) :]
    axes = {
        "clients": (CLIENTS, by_clients),
        "parameters": (sizes, by_width),
        "cohort": (COHORTS, by_cohort),
    }
    points = {name: list(zip(xs, ys, strict=True)) for name, (xs, ys) in axes.items()}
    results: dict[str, Any] = {name: {"points": p, "slope": slope(p)} for name, p in points.items()}
    results["parameters"]["bare_slope"] = slope(list(zip(sizes, plain, strict=True)))
    return results


def draw(results: dict[str, Any], path: Path) -> None:
    """Plot the three curves side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.6), dpi=140, layout="constrained")
    for axes, (name, result) in zip(figure.subplots(1, 3), results.items(), strict=True):
        xs, ys = zip(*result["points"], strict=True)
        axes.loglog(xs, ys, "o-", color="#0072B2", lw=1.6, ms=5)
        linear = [ys[-1] * x / xs[-1] for x in xs]
        axes.loglog(xs, linear, ":", color="#999999", lw=1, label="linear")
        title = f"slope at the end {result['slope']:.2f}"
        axes.set(xlabel=AXES[name], ylabel="seconds per round", title=title)
        axes.grid(color="#e6e6e6", lw=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def main() -> None:
    """Measure, plot, print, and fail if the time grows faster than linearly."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/growth.json"))
    parser.add_argument("--png", type=Path, default=Path("docs/img/growth.png"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # as the command line does
    results = measure()
    save(results, arguments.json)
    draw(results, arguments.png)
    for name, result in results.items():
        points = "  ".join(f"{x:g}: {y:.4f}" for x, y in result["points"])
        print(f"{AXES[name]:<34}{points}   slope {result['slope']:.2f}")
    print(f"plain loop, parameters: slope {results['parameters']['bare_slope']:.2f}")
    steep = [name for name, result in results.items() if result["slope"] > MAX_SLOPE]
    if steep:
        sys.exit(f"worse than linear in {', '.join(steep)}")


if __name__ == "__main__":
    main()
