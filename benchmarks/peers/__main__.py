"""Other libraries beside ours: the same gradient steps in the same run, one thread a process, medians of wall time a round.

    python -m benchmarks.peers [--visits N] [--only w1,w2,w3] [--json FILE]

W1, W2 and W3 are those of benchmarks/engines.py. Every peer has an environment of its own (.peers/), a network of loopback alone,
and plays in every way that it offers for two cores. Nobody evaluates or writes checkpoints. Contestants take turns: on each of its
visits one starts anew, alone, plays some rounds that count for nothing, and then rounds that are timed.

seconds      median wall time of a timed round, over all visits
cpu_seconds  processor time a round of all its processes
memory_mib   their proportional memory (PSS) after the last round, the largest of the visits
fixed        wall time of a visit beside as many rounds: imports, data, start and end; the median of the visits

Workloads that are not asked for keep their last results. The run fails unless our best engine is ahead of every way of every peer
that runs.
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

from benchmarks.measure import fail, keep
from benchmarks.peers.environments import ROOT, last_line, python_of

WAYS = {
    "ours": ("inprocess", "pool", "vectorised"),
    "flower": ("ray",),
    "pfl": ("1 process", "2 processes"),
    "fluke": ("1 process",),
    "blazefl": ("1 process", "2 processes", "2 threads"),
}
LEFT_OUT = {
    ("w2", "ours", "vectorised")
}  # the engine declines: stacked convolutions of this width are slower than single ones
ROUNDS = {
    "w1": (2, 3, 2),
    "w2": (1, 2, 0),
    "w3": (2, 3, 2),
}  # to warm up; to time at least, and for how many seconds
PATIENCE = 240  # seconds that a visit may last
FAR = 3  # who takes so many times as long as the fastest is not visited again
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
    """One visit: what its clock wrote, and its fixed cost."""
    command = (
        [str(ROOT / "scripts" / "loopback.sh"), str(python_of(peer))]
        if peer != "ours"
        else [sys.executable]
    )
    with tempfile.TemporaryDirectory(
        prefix="p-", ignore_cleanup_errors=True
    ) as folder:  # a short name, for Ray has sockets there
        result = Path(folder) / "result.json"
        command += [
            "-m",
            f"benchmarks.peers.{peer}",
            work,
            way,
            str(result),
            *map(str, ROUNDS[work]),
        ]
        homes = dict.fromkeys(("HOME", "RAY_TMPDIR", "FLWR_HOME"), folder)
        started = time.monotonic()
        said = attend(command, Path(folder), {**os.environ, **SETTINGS, **homes})
        if not result.exists():
            raise RuntimeError(f"it does not run: {last_line(said)}")
        found: dict[str, Any] = json.loads(result.read_text())
        played = (len(found["rounds"]) + ROUNDS[work][0]) * a_round([found])
        return found | {"fixed": time.monotonic() - started - played}


def attend(command: list[str], folder: Path, env: dict[str, str]) -> str:
    """Run a contestant to its end, or for as long as patience lasts; what it said of errors."""
    with (folder / "said").open("w+") as said:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=env,
            stdout=subprocess.DEVNULL,
            stderr=said,
            start_new_session=True,
        )
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return f"no result within {PATIENCE} s"
        said.seek(0)
        return said.read()


def measure(work: str, visits: int) -> dict[str, dict[str, Any]]:
    """Every contestant by name: what it takes a round, or why it was not measured."""
    ways = {
        f"{peer}, {way}": (peer, way)
        for peer in WAYS
        for way in WAYS[peer]
        if (work, peer, way) not in LEFT_OUT
    }
    seen: dict[str, list[dict[str, Any]]] = {name: [] for name in ways}
    why: dict[str, dict[str, Any]] = {}
    for _ in range(visits):
        for name, (peer, way) in ways.items():
            if name in why or far(name, seen):
                continue
            try:
                seen[name].append(visit(work, peer, way))
                print(f"{work} {name:<22}{a_round(seen[name][-1:]):>9.4f} s a round", flush=True)
            except RuntimeError as error:
                if peer == "ours":
                    raise
                why[name] = {"not measured": str(error)}
    return {name: why.get(name) or summary(found) for name, found in seen.items()}


def a_round(visits: list[dict[str, Any]]) -> float:
    return statistics.median(seconds for found in visits for seconds in found["rounds"])


def far(name: str, seen: dict[str, list[dict[str, Any]]]) -> bool:
    """Whether there is nothing to learn from one more visit."""
    return bool(seen[name]) and a_round(seen[name]) > FAR * min(
        a_round(found) for found in seen.values() if found
    )


def summary(visits: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "seconds": a_round(visits),
        "cpu_seconds": statistics.median(found["cpu_seconds"] for found in visits),
        "memory_mib": max(found["memory_mib"] for found in visits),
        "fixed": statistics.median(found["fixed"] for found in visits),
        "rounds": sum(len(found["rounds"]) for found in visits),
    }


def compare(table: dict[str, dict[str, Any]]) -> None:
    """Add to everybody the ratio to the best of ours."""
    timed = {name: row for name, row in table.items() if "seconds" in row}
    best = min(row["seconds"] for name, row in timed.items() if name.startswith("ours"))
    for row in timed.values():
        row["ratio"] = row["seconds"] / best


def show(work: str, table: dict[str, dict[str, Any]]) -> None:
    """The workload as lines."""
    print(
        f"\n{work:<24}{'round, s':>10}{'ratio':>8}{'CPU, s':>9}{'MiB':>7}{'fixed, s':>10}{'rounds':>8}"
    )
    for name, r in table.items():
        if "seconds" not in r:
            print(f"{name:<24}{r['not measured']}")
            continue
        cells = f"{r['seconds']:>10.4f}{r['ratio']:>8.2f}{r['cpu_seconds']:>9.3f}{r['memory_mib']:>7.0f}"
        print(f"{name:<24}{cells}{r['fixed']:>10.1f}{r['rounds']:>8}")


def main() -> None:
    """Measure, print, and fail where a peer is ahead."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--visits", type=int, default=2, help="visits of every contestant to every workload"
    )
    parser.add_argument("--only", default="w1,w2,w3")
    parser.add_argument("--json", type=Path, default=ROOT / "benchmarks" / "results" / "peers.json")
    asked = parser.parse_args()
    results = {work: measure(work, asked.visits) for work in asked.only.split(",")}
    for work, table in results.items():
        compare(table)
        show(work, table)
    known = json.loads(asked.json.read_text()) if asked.json.exists() else {}
    keep({**known, **results}, asked.json)
    rivals = [
        (work, name, row)
        for work, table in results.items()
        for name, row in table.items()
        if not name.startswith("ours")
    ]
    fail(
        [
            f"{work} {name} {row['ratio']:.2f}"
            for work, name, row in rivals
            if row.get("ratio", 2) <= 1
        ]
    )


if __name__ == "__main__":
    main()
