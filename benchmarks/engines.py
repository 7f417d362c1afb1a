"""Our engines beside the floor on three workloads: rounds of each in turn, one thread a process; medians a round.

    python -m benchmarks.engines [--rounds N] [--only w1,w2,w3] [--json FILE]

floor        the bare loop of benchmarks/overhead.py, one process
floor x 2    two such processes, half of the cohort each; the round lasts until both are done
inprocess, pool, vectorised, ray    our engines; pool and Ray with two workers, Ray in a network of loopback alone

W1: LeNet-5, 100 clients of 100 samples, 10 a round, batch 10. W2: ResNet-8 with group norm, 16 clients of 128 pictures, all a
round, batch 32, 2 epochs; it takes fewer rounds, and the vectorised engine leaves it to the in-process one. W3: MLP 784-64-10,
10,000 clients of 20 samples, 100 a round, batch 20. Evaluation and checkpoints are left out.

Every contestant has processes of its own. CPU is their user and system time in a round. Memory is the largest of the sums of their
PSS after each round; pages of libraries, which all contestants share, are divided among all. Missing a mark fails the run.
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
from benchmarks.measure import cpu, fail, family, keep, memory

LOOPBACK = Path(__file__).parents[1] / "scripts" / "loopback.sh"
WARM = 2  # rounds that count for nothing
RATIOS = (("inprocess", "floor"), ("pool", "floor x 2"), ("pool", "floor"), ("vectorised", "floor"), ("vectorised", "inprocess"),
          ("ray", "floor x 2"))  # fmt: skip
MARKS = {("w1", "inprocess / floor"): 1.05, ("w2", "inprocess / floor"): 1.02, ("w3", "inprocess / floor"): 1.15,
         ("w1", "pool / floor x 2"): 1.10, ("w2", "pool / floor x 2"): 1.10,
         ("w3", "vectorised / floor"): 0.45, ("w1", "vectorised / inprocess"): 1.00}  # fmt: skip


class Round(NamedTuple):
    seconds: float
    cpu_seconds: float
    memory_mib: float


class Contestant:
    """The processes of one contestant, ready for a round."""

    def __init__(self, work: str, name: str, folder: Path) -> None:
        commands = {
            "floor": [["floor", "0", "1"]],
            "floor x 2": [["floor", "0", "2"], ["floor", "1", "2"]],
        }.get(name, [[name]])
        network = [str(LOOPBACK)] if name == "ray" else []
        env = {**os.environ, "OMP_NUM_THREADS": "1", "HOME": str(folder), "RAY_TMPDIR": str(folder)}
        env |= {"RAY_worker_niceness": "0"}  # 15 by default, and the others have 0
        env.pop("RAY_ADDRESS", None)
        self.name, self.said = name, (folder / f"{name}.log").open("w+")
        self.processes = [
            subprocess.Popen([*network, sys.executable, "-m", "benchmarks.contestant", work, *command], env=env, text=True,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.said)
            for command in commands
        ]  # fmt: skip
        self._wait()

    def round(self) -> Round:
        """One round; the next one is made ready after the clock has stopped."""
        pids = family(*(p.pid for p in self.processes))
        before, started = cpu(pids), time.perf_counter()
        self._turn()
        found = Round(time.perf_counter() - started, cpu(pids) - before, memory(pids))
        self._turn()
        return found

    def _turn(self) -> None:
        for process in self.processes:
            print(file=process.stdin, flush=True)
        self._wait()

    def _wait(self) -> None:
        for process in self.processes:
            if (process.stdout.readline() if process.stdout else "") != f"{TURN}\n":
                self.said.seek(0)
                sys.exit(f"{self.name} ended: {self.said.read()[-2000:]}")

    def close(self) -> None:
        for process in self.processes:
            process.communicate()
        self.said.close()


def no_ray() -> str | None:
    """Why Ray cannot take part, or None."""
    if importlib.util.find_spec("ray") is None:
        return "not measured: Ray is not installed"
    if subprocess.run([LOOPBACK, "true"], capture_output=True).returncode:
        return "not measured: no network namespace, and Ray is not started without one"
    return None


def measure(work: str, count: int) -> dict[str, Any]:
    """What every contestant takes for a round, and the ratios of wall time."""
    absent = no_ray()
    names = [
        "floor",
        "floor x 2",
        "inprocess",
        "pool",
        *(["vectorised"] if work != "w2" else []),
        *([] if absent else ["ray"]),
    ]
    with tempfile.TemporaryDirectory(
        prefix="b-"
    ) as folder:  # a short name: Ray's sockets lie under it
        contestants = {name: Contestant(work, name, Path(folder)) for name in names}
        seen = [{name: c.round() for name, c in contestants.items()} for _ in range(count + WARM)][
            WARM:
        ]
        for contestant in contestants.values():
            contestant.close()
    table: dict[str, Any] = {name: summary([turn[name] for turn in seen]) for name in names}
    pairs = [(a, b) for a, b in RATIOS if a in table and b in table]
    ratios = {f"{a} / {b}": table[a]["seconds"] / table[b]["seconds"] for a, b in pairs}
    if absent:
        table["ray"] = {"not measured": absent}
    return {"rounds": count, "contestants": table, "ratios": ratios}


def summary(seen: list[Round]) -> dict[str, float]:
    seconds, cpu_seconds, mib = zip(*seen, strict=True)
    return Round(statistics.median(seconds), statistics.median(cpu_seconds), max(mib))._asdict()


def show(work: str, found: dict[str, Any]) -> None:
    """The contestants and ratios of a workload as lines."""
    print(f"{work}, {found['rounds']} rounds{'wall, s':>12}{'CPU, s':>10}{'MiB':>8}")
    for name, r in found["contestants"].items():
        print(
            f"   {name:<14}",
            *r.values() if "not measured" in r else [f"{v:9.3f}" for v in r.values()],
        )
    for name, ratio in found["ratios"].items():
        mark = MARKS.get((work, name))
        print(f"   {name:<26}{ratio:8.3f}" + (f"   mark {mark:.2f}" if mark else ""))


def main() -> None:
    """Measure, print, and fail where a mark is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default=",".join(WORK))
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/engines.json"))
    asked = parser.parse_args()
    counts = {
        work: max(1, asked.rounds // 2) if work == "w2" else asked.rounds
        for work in asked.only.split(",")
    }
    results = {work: measure(work, count) for work, count in counts.items()}
    keep(results, asked.json)
    for work, found in results.items():
        show(work, found)
    ratios = {
        (work, name): ratio
        for work, found in results.items()
        for name, ratio in found["ratios"].items()
    }
    fail(
        [
            f"{work} {name} {ratio:.3f}"
            for (work, name), ratio in ratios.items()
            if ratio > MARKS.get((work, name), ratio)
        ]
    )


if __name__ == "__main__":
    main()
