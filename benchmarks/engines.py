"""Our engines compared with a plain PyTorch loop on three workloads: medians per round.

    python -m benchmarks.engines [--rounds N] [--only w1,w2,w3] [--json FILE]

floor        the plain loop of benchmarks/overhead.py, one process
floor x 2    two such processes with half of the cohort each; the round ends when both are done
inprocess, pool, vectorised, ray
             our engines; the pool and Ray with two workers, Ray in a network with loopback only

W1: LeNet-5, 100 clients of 100 samples, 10 per round, batch size 10. W2: ResNet-8 with group
norm, 16 clients of 128 images, all in every round, batch size 32, 2 epochs; it runs fewer rounds,
and the vectorised engine leaves it to the in-process one. W3: MLP 784-64-10, 10,000 clients of 20
samples, 100 per round, batch size 20. Nothing is evaluated and no checkpoints are written.

Every contestant has its own processes, with one thread each; contestants take turns, round by
round. CPU is their user and system time in a round. Memory is the largest sum of their PSS after
a round; pages of libraries that all contestants share are split among them. Exceeding a limit
fails the benchmark.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.contestant import TURN, WORK
from benchmarks.measure import cpu, fail, family, memory, save

LOOPBACK = Path(__file__).parents[1] / "scripts" / "loopback.sh"
WARM_UP = 2  # rounds that are not counted
RATIOS = (
    ("inprocess", "floor"),
    ("pool", "floor x 2"),
    ("pool", "floor"),
    ("vectorised", "floor"),
    ("vectorised", "inprocess"),
    ("ray", "floor x 2"),
)
LIMITS = {
    ("w1", "inprocess / floor"): 1.05,
    ("w2", "inprocess / floor"): 1.02,
    ("w3", "inprocess / floor"): 1.15,
    ("w1", "pool / floor x 2"): 1.10,
    ("w2", "pool / floor x 2"): 1.10,
    ("w3", "vectorised / floor"): 0.45,
    ("w1", "vectorised / inprocess"): 1.00,
}


class Round(NamedTuple):
    seconds: float
    cpu_seconds: float
    memory_mib: float


class Contestant:
    """The processes of one contestant, ready to run a round."""

    def __init__(self, work: str, name: str, folder: Path) -> None:
        commands = {
            "floor": [["floor", "0", "1"]],
            "floor x 2": [["floor", "0", "2"], ["floor", "1", "2"]],
        }.get(name, [[name]])
        network = [str(LOOPBACK)] if name == "ray" else []
        env = {**os.environ, "OMP_NUM_THREADS": "1", "HOME": str(folder), "RAY_TMPDIR": str(folder)}
        env |= {"RAY_worker_niceness": "0"}  # 15 by default; the other contestants have 0
        env.pop("RAY_ADDRESS", None)
        self.name, self.log = name, (folder / f"{name}.log").open("w+")
        self.processes = [
            subprocess.Popen(
                [*network, sys.executable, "-m", "benchmarks.contestant", work, *command],
                env=env,
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.log,
            )
            for command in commands
        ]
        self._wait()

    def round(self) -> Round:
        """Time one round; the next one is prepared after the clock has stopped."""
        pids = family(*(p.pid for p in self.processes))
        before, started = cpu(pids), time.perf_counter()
        self._turn()
        measured = Round(time.perf_counter() - started, cpu(pids) - before, memory(pids))
        self._turn()
        return measured

    def _turn(self) -> None:
        for process in self.processes:
            print(file=process.stdin, flush=True)
        self._wait()

    def _wait(self) -> None:
        for process in self.processes:
            if (process.stdout.readline() if process.stdout else "") != f"{TURN}\n":
                self.log.seek(0)
                sys.exit(f"{self.name} ended: {self.log.read()[-2000:]}")

    def close(self) -> None:
        for process in self.processes:
            process.communicate()
        self.log.close()


def why_no_ray() -> str | None:
    """Why Ray cannot be measured; None if it can."""
    if importlib.util.find_spec("ray") is None:
        return "not measured: Ray is not installed"
    if subprocess.run([LOOPBACK, "true"], capture_output=True).returncode:
        return "not measured: no network namespace, and Ray is not started without one"
    return None


def measure(work: str, count: int) -> dict[str, Any]:
    """The cost of a round for every contestant, and the ratios of wall time."""
    ray_missing = why_no_ray()
    names = ["floor", "floor x 2", "inprocess", "pool"]
    if work != "w2":
        names.append("vectorised")
    if not ray_missing:
        names.append("ray")
    # A short name, because Ray's sockets are in the folder.
    with tempfile.TemporaryDirectory(prefix="b-") as folder:
        contestants = {name: Contestant(work, name, Path(folder)) for name in names}
        rounds: dict[str, list[Round]] = {name: [] for name in names}
        for _ in range(WARM_UP + count):
            for name, contestant in contestants.items():
                rounds[name].append(contestant.round())
        for contestant in contestants.values():
            contestant.close()
    table: dict[str, Any] = {name: summary(rounds[name][WARM_UP:]) for name in names}
    pairs = [(a, b) for a, b in RATIOS if a in table and b in table]
    ratios = {f"{a} / {b}": table[a]["seconds"] / table[b]["seconds"] for a, b in pairs}
    if ray_missing:
        table["ray"] = {"not measured": ray_missing}
    return {"rounds": count, "contestants": table, "ratios": ratios}


def summary(rounds: list[Round]) -> dict[str, float]:
    seconds, cpu_seconds, mib = zip(*rounds, strict=True)
    return Round(statistics.median(seconds), statistics.median(cpu_seconds), max(mib))._asdict()


def show(work: str, result: dict[str, Any]) -> None:
    """Print the contestants and ratios of a workload."""
    print(f"{work}, {result['rounds']} rounds{'wall, s':>12}{'CPU, s':>10}{'MiB':>8}")
    for name, r in result["contestants"].items():
        cells = r.values() if "not measured" in r else [f"{v:9.3f}" for v in r.values()]
        print(f"   {name:<14}", *cells)
    for name, ratio in result["ratios"].items():
        limit = LIMITS.get((work, name))
        print(f"   {name:<26}{ratio:8.3f}" + (f"   limit {limit:.2f}" if limit else ""))


def main() -> None:
    """Measure, print, and fail if a limit is exceeded."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default=",".join(WORK))
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/engines.json"))
    arguments = parser.parse_args()
    counts = {
        work: max(1, arguments.rounds // 2) if work == "w2" else arguments.rounds
        for work in arguments.only.split(",")
    }
    results = {work: measure(work, count) for work, count in counts.items()}
    save(results, arguments.json)
    exceeded = []
    for work, result in results.items():
        show(work, result)
        for name, ratio in result["ratios"].items():
            if ratio > LIMITS.get((work, name), ratio):
                exceeded.append(f"{work} {name} {ratio:.3f}")
    fail(exceeded)


if __name__ == "__main__":
    main()
