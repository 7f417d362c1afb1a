"""Shared by the benchmarks: CPU time and memory of processes on Linux, results, limits."""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any


def family(*pids: int) -> list[int]:
    """The processes and all their descendants."""
    children: dict[int, list[int]] = defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # the process has ended in the meantime
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            children[parent].append(int(stat.parent.name))
    members = list(pids)
    for pid in members:  # the list grows while it is traversed
        members += children[pid]
    return members


def cpu(pids: Iterable[int]) -> float:
    """CPU seconds of the processes so far, user and system, all threads; 0 if one has ended."""
    total = 0.0
    for pid in pids:
        with suppress(OSError):
            clock = ~pid << 3 | 2  # the CPU clock of that process, as in clock_getcpuclockid(3)
            total += time.clock_gettime(clock)
    return total


def memory(pids: Iterable[int]) -> float:
    """Proportional memory (PSS) in MiB: a page shared by several processes is split among them."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def fedloom_run(folder: Path, *options: str) -> list[str]:
    """The command of a run in that folder."""
    return [sys.executable, "-m", "fedloom", "run", "--out", str(folder), *options]


def save(results: dict[str, Any], path: Path) -> None:
    """Write the results as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=2) + "\n")


def fail(exceeded: Sequence[str]) -> None:
    """Exit with an error if any limit was exceeded."""
    if exceeded:
        sys.exit("limits exceeded: " + "; ".join(exceeded))
