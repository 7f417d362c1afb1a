"""What the benchmarks share: processor time and memory of processes as Linux counts them, runs to watch, results and marks."""

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
    """The processes and all that descend from them."""
    children: dict[int, list[int]] = defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            children[parent].append(int(stat.parent.name))
    found = list(pids)
    for pid in found:
        found += children[pid]
    return found


def cpu(pids: Iterable[int]) -> float:
    """Seconds that the processes have computed so far, user and system, all threads; one that has ended counts nothing."""
    total = 0.0
    for pid in pids:
        with suppress(OSError):
            total += time.clock_gettime(
                ~pid << 3 | 2
            )  # the clock of that process, as clock_getcpuclockid(3) makes it
    return total


def memory(pids: Iterable[int]) -> float:
    """Proportional memory (PSS) in MiB: a page that several processes share is divided among them."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def fedloom_run(folder: Path, *options: str) -> list[str]:
    """The command of a run into the folder."""
    return [sys.executable, "-m", "fedloom", "run", "--out", str(folder), *options]


def keep(results: dict[str, Any], path: Path) -> None:
    """Write the results down as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=2) + "\n")


def fail(missed: Sequence[str]) -> None:
    """End with an error where marks were missed."""
    if missed:
        sys.exit("missed: " + "; ".join(missed))
