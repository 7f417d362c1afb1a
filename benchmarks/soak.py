"""Does a long run grow? Memory, open files and the run folder over thousands of rounds.

    python -m benchmarks.soak [--rounds 10000] [--method fedavg,scaffold] [--engine inprocess,pool]

Each run has 20 clients, 5 per round, a small model, an evaluation and a checkpoint every round, and
is measured every 100 rounds, right after the checkpoint, in a process of its own: the resident
memory of the process (and of its workers), the open file descriptors, and the bytes in the run
folder. metrics.jsonl gets a line per round by design, so it is counted apart.

What Python itself keeps is not growth, since it has an end:

- freed tuples, up to 2,000 of each length. A round adds one or more of some lengths, so the first
  2,000 rounds are left out.
- the table of interned strings. pathlib interns the names of files, and checkpoints have a new name
  every round: 4.9 strings per round, measured by how many more it takes until the table is rebuilt
  (26,600 after round 100, 24,150 after round 600). That predicts a step at round 5,530, and 1.7 MiB
  were added between rounds 5,500 and 5,600. The next rebuild, of 3.7 MiB, is due around round
  30,000; later ones find the space of earlier ones. A rise of more than STEP between two samples is
  counted as such a step, and more than one in 5,000 rounds is an error.

The slope is that of the least-squares line through the samples without the steps. It may be at most
20 bytes per round and process, which is 200 KB in 10,000 rounds. Short runs cannot be measured that
well, so the limit is never below one GRAIN, in which the allocator takes memory from the system. To
keep the record of a round takes 1,000 bytes or more.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from benchmarks.measure import fail, family, save
from fedloom.engines.malloc import keep_freed_memory
from fedloom.experiment.callbacks import Callback
from fedloom.experiment.execute import execute
from fedloom.experiment.progress import Progress
from fedloom.metrics.records import RoundRecord
from fedloom.settings.config import load

EVERY = 100  # rounds between two samples
WARM_UP = 2000  # rounds that are left out
STEP = 1 << 20  # bytes
ROUNDS_PER_STEP = 5000
MAX_SLOPE = 20.0  # bytes per round and process
GRAIN = 128 << 10  # bytes
FOLDER_BYTES = 1024  # longer numbers in manifests: round 9,999 has one digit less than round 10,000
METRICS = "metrics.jsonl"
HEADER = """\
                    memory                            open files     bytes in folder    metrics
method, engine      B/round steps first MiB last MiB  first  last      first       last B/round s"""


class Sample(NamedTuple):
    """After a round: bytes of memory and open descriptors of all processes, bytes in the folder."""

    round: int
    processes: int
    memory: int
    descriptors: int
    folder: int
    metrics: int


def resident(pid: int) -> int:
    """Bytes of physical memory that a process uses."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def take_sample(number: int, folder: Path) -> Sample:
    """Measure this process, its workers and the folder."""
    pids = family(os.getpid())
    sizes = {path.name: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    metrics = sizes.pop(METRICS)
    descriptors = sum(1 for pid in pids for _ in Path(f"/proc/{pid}/fd").iterdir())
    memory = sum(map(resident, pids))
    return Sample(number, len(pids), memory, descriptors, sum(sizes.values()), metrics)


class Watch(Callback):
    """Takes a sample every hundredth round."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.samples: list[Sample] = []

    def on_round(self, record: RoundRecord) -> None:
        if record.round % EVERY == 0:
            self.samples.append(take_sample(record.round, self.folder))


def run(method: str, engine: str, rounds: int) -> dict[str, Any]:
    """One run from the first round to the last, measured from inside."""
    keep_freed_memory()  # as the command line does
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as place, Path(os.devnull).open("w") as nowhere:
        watch = Watch(Path(place) / "run")
        progress = Progress(console=Console(file=nowhere, soft_wrap=True))
        config = load(settings(method, engine, rounds))
        execute(config, watch.folder, callbacks=[progress, watch])
    return {**summary(watch.samples), "seconds": time.perf_counter() - started}


def settings(method: str, engine: str, rounds: int) -> dict[str, Any]:
    """A run whose rounds take milliseconds."""
    return {
        "rounds": rounds,
        "engine": engine,
        "workers": 2,
        "method": method,
        "model": "mlp(width=16, layers=1)",
        "data": {"name": "crowd-20", "clients": 0, "partition": "user"},
        "train": {"batch": 12, "lr": 0.05},
        "sample": {"per_round": 5},
        "evaluate": {"every": 1},
        "checkpoint_every": 1,
    }


def summary(samples: list[Sample]) -> dict[str, Any]:
    """Slopes and growth over the samples after the warm-up, and first and last values."""
    last = samples[-1]
    counted = [s for s in samples if s.round >= WARM_UP]
    rises = np.diff([s.memory for s in counted])
    steady = np.cumsum(np.where(rises > STEP, 0, rises))
    rounds = [s.round for s in counted]
    return {
        "rounds": last.round,
        "memory_slope": slope(rounds[1:], steady),
        "memory_steps": int((rises > STEP).sum()),
        "memory_slope_with_steps": slope(rounds, [s.memory for s in counted]),
        "metrics_slope": slope(rounds, [s.metrics for s in counted]),
        "folder_growth": last.folder - counted[0].folder,
        "descriptors_growth": last.descriptors - counted[0].descriptors,
        "first": counted[0]._asdict(),
        "last": last._asdict(),
        "memory": [s.memory for s in samples],
    }


def slope(rounds: Sequence[int], values: Sequence[int] | np.ndarray) -> float:
    """Bytes per round, by least squares."""
    return float(np.polyfit(rounds, values, 1)[0])


def problems(name: str, measured: dict[str, Any]) -> list[str]:
    """What grew."""
    counted = measured["last"]["round"] - measured["first"]["round"]
    limit = measured["last"]["processes"] * max(MAX_SLOPE, GRAIN / counted)
    rise, steps = measured["memory_slope"], measured["memory_steps"]
    found = []
    if rise > limit:
        found.append(f"{name}: memory grows by {rise:.1f} bytes per round, limit {limit:.1f}")
    if steps > max(1, counted // ROUNDS_PER_STEP):
        found.append(f"{name}: memory grows by {steps} steps in {counted} rounds")
    if measured["descriptors_growth"] > 0:
        found.append(f"{name}: {measured['descriptors_growth']} more open files at the end")
    if measured["folder_growth"] > FOLDER_BYTES:
        found.append(f"{name}: the folder grows by {measured['folder_growth']} bytes")
    return found


def show(name: str, measured: dict[str, Any]) -> None:
    """Print what one run has measured."""
    first, last = measured["first"], measured["last"]
    print(
        f"{name:<19}{measured['memory_slope']:>8.1f}{measured['memory_steps']:>6}"
        f"{first['memory'] / 2**20:>10.2f}{last['memory'] / 2**20:>9.2f}"
        f"{first['descriptors']:>7}{last['descriptors']:>6}"
        f"{first['folder']:>11,}{last['folder']:>11,}"
        f"{measured['metrics_slope']:>8.0f}{measured['seconds']:>5.0f}",
        flush=True,
    )


def main() -> None:
    """Measure, print, and fail if anything grows that should not."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=10_000)
    parser.add_argument("--method", default="fedavg,scaffold")
    parser.add_argument("--engine", default="inprocess")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/soak.json"))
    arguments = parser.parse_args()
    if arguments.rounds < WARM_UP + 5 * EVERY:
        parser.error(f"--rounds must be {WARM_UP + 5 * EVERY} or more: {WARM_UP} are left out")
    print(HEADER)
    results = {}
    for engine in arguments.engine.split(","):
        for method in arguments.method.split(","):
            # a process of its own, so that no run finds the memory of an earlier one
            with ProcessPoolExecutor(1, get_context("spawn")) as process:
                measured = process.submit(run, method, engine, arguments.rounds).result()
            results[f"{method}, {engine}"] = measured
            show(f"{method}, {engine}", measured)
            save(results, arguments.json)
    fail([problem for name, measured in results.items() for problem in problems(name, measured)])


if __name__ == "__main__":
    main()
