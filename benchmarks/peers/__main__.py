"""Other libraries compared with ours on the same gradient steps: medians of wall time per round.

    python -m benchmarks.peers [--visits N] [--only w1,w2,w3] [--json FILE]

W1, W2 and W3 are those of benchmarks/engines.py. Every peer has its own environment (.peers/) and
a network with loopback only, and runs in every way that it offers for two cores, with one thread
per process. None evaluates or writes checkpoints. Contestants take turns: a visit starts one of
them in new processes, alone on the machine, and runs some warm-up rounds and then the timed ones.

seconds      median wall time of a timed round, over all visits
cpu_seconds  CPU time per round of all its processes
memory_mib   their proportional memory (PSS) after the last round, the largest of all visits
fixed        wall time of a visit besides its rounds: imports, data, start and end; the median of
             all visits

Workloads that are not named with --only keep their last results. The benchmark fails unless our
best engine is faster than every way of every peer that runs.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.measure import fail, save
from benchmarks.peers.environments import ROOT, last_line, python_of

WAYS = {
    "ours": ("inprocess", "pool", "vectorised"),
    "flower": ("ray",),
    "pfl": ("1 process", "2 processes"),
    "fluke": ("1 process",),
    "blazefl": ("1 process", "2 processes", "2 threads"),
}
# The vectorised engine declines W2: stacked convolutions of this width are slower than single ones.
LEFT_OUT = {("w2", "ours", "vectorised")}
# Warm-up rounds, the least number of timed rounds, and the least time of these in seconds.
ROUNDS = {"w1": (2, 3, 2), "w2": (1, 2, 0), "w3": (2, 3, 2)}
TIMEOUT = 240  # seconds that a visit may last
HOPELESS = 3  # a contestant this many times slower than the fastest is not visited again
SETTINGS = {
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": str(ROOT),
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # 15 by default
    "WANDB_MODE": "disabled",
}


def visit(work: str, peer: str, way: str) -> dict[str, Any]:
    """One visit: what its clock recorded, and its fixed cost."""
    if peer == "ours":
        python = [sys.executable]
    else:
        python = [str(ROOT / "scripts" / "loopback.sh"), str(python_of(peer))]
    # A short name, because Ray's sockets are in the folder.
    with tempfile.TemporaryDirectory(prefix="p-", ignore_cleanup_errors=True) as folder:
        result = Path(folder) / "result.json"
        options = [work, way, str(result), *map(str, ROUNDS[work])]
        command = [*python, "-m", f"benchmarks.peers.{peer}", *options]
        homes = dict.fromkeys(("HOME", "RAY_TMPDIR", "FLWR_HOME"), folder)
        started = time.monotonic()
        errors = run_to_end(command, Path(folder), {**os.environ, **SETTINGS, **homes})
        if not result.exists():
            raise RuntimeError(f"it does not run: {last_line(errors)}")
        measured: dict[str, Any] = json.loads(result.read_text())
        count = len(measured["rounds"]) + ROUNDS[work][0]
        in_rounds = count * per_round([measured])
        return measured | {"fixed": time.monotonic() - started - in_rounds}


def run_to_end(command: list[str], folder: Path, env: dict[str, str]) -> str:
    """Run a contestant to its end or the timeout; returns its errors."""
    with (folder / "errors").open("w+") as errors:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=env,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
        try:
            process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return f"no result within {TIMEOUT} s"
        errors.seek(0)
        return errors.read()


def measure(work: str, visits: int) -> dict[str, dict[str, Any]]:
    """Every contestant by name: its cost per round, or why it was not measured."""
    contestants = contestants_of(work)
    visited: dict[str, list[dict[str, Any]]] = {name: [] for name in contestants}
    failed: dict[str, dict[str, Any]] = {}
    for _ in range(visits):
        for name, (peer, way) in contestants.items():
            if name in failed or is_hopeless(name, visited):
                continue
            try:
                visited[name].append(visit(work, peer, way))
            except RuntimeError as error:
                if peer == "ours":
                    raise
                failed[name] = {"not measured": str(error)}
            else:
                last = per_round(visited[name][-1:])
                print(f"{work} {name:<22}{last:>9.4f} s per round", flush=True)
    return {name: failed.get(name) or summary(results) for name, results in visited.items()}


def contestants_of(work: str) -> dict[str, tuple[str, str]]:
    """The peers in every way in which they run a workload, by name."""
    return {
        f"{peer}, {way}": (peer, way)
        for peer, ways in WAYS.items()
        for way in ways
        if (work, peer, way) not in LEFT_OUT
    }


def per_round(visits: list[dict[str, Any]]) -> float:
    """Median seconds of a round over visits."""
    return statistics.median(seconds for result in visits for seconds in result["rounds"])


def is_hopeless(name: str, visited: dict[str, list[dict[str, Any]]]) -> bool:
    """Whether a contestant was so slow that another visit would not change anything."""
    fastest = min((per_round(results) for results in visited.values() if results), default=0.0)
    return bool(visited[name]) and per_round(visited[name]) > HOPELESS * fastest


def summary(visits: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "seconds": per_round(visits),
        "cpu_seconds": statistics.median(result["cpu_seconds"] for result in visits),
        "memory_mib": max(result["memory_mib"] for result in visits),
        "fixed": statistics.median(result["fixed"] for result in visits),
        "rounds": sum(len(result["rounds"]) for result in visits),
    }


def add_ratios(table: dict[str, dict[str, Any]]) -> None:
    """Add the ratio to the best of our engines to every row."""
    timed = {name: row for name, row in table.items() if "seconds" in row}
    best = min(row["seconds"] for name, row in timed.items() if name.startswith("ours"))
    for row in timed.values():
        row["ratio"] = row["seconds"] / best


def show(work: str, table: dict[str, dict[str, Any]]) -> None:
    """Print the results of a workload."""
    times = f"{'round, s':>10}{'ratio':>8}{'CPU, s':>9}"
    print(f"\n{work:<24}{times}{'MiB':>7}{'fixed, s':>10}{'rounds':>8}")
    for name, r in table.items():
        if "seconds" not in r:
            print(f"{name:<24}{r['not measured']}")
            continue
        times = f"{r['seconds']:>10.4f}{r['ratio']:>8.2f}{r['cpu_seconds']:>9.3f}"
        print(f"{name:<24}{times}{r['memory_mib']:>7.0f}{r['fixed']:>10.1f}{r['rounds']:>8}")


def main() -> None:
    """Measure, print, and fail if a peer is faster."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--visits", type=int, default=2, help="visits per contestant and workload")
    parser.add_argument("--only", default="w1,w2,w3")
    parser.add_argument("--json", type=Path, default=ROOT / "benchmarks" / "results" / "peers.json")
    arguments = parser.parse_args()
    results = {work: measure(work, arguments.visits) for work in arguments.only.split(",")}
    faster = []
    for work, table in results.items():
        add_ratios(table)
        show(work, table)
        for name, row in table.items():
            if not name.startswith("ours") and row.get("ratio", 2) <= 1:
                faster.append(f"{work} {name} {row['ratio']:.2f}")
    earlier = json.loads(arguments.json.read_text()) if arguments.json.exists() else {}
    save({**earlier, **results}, arguments.json)
    fail(faster)


if __name__ == "__main__":
    main()
