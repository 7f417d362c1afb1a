"""Does memory stay flat? `fedloom run --preset crowd`: 100,000 clients with a memory each, 100 a round, 50 rounds of SCAFFOLD.

    python -m benchmarks.crowd [--json FILE]

The run and its workers are watched from outside: PSS, summed over its processes, ten times a second, and how many rounds it has
written down. Memory at a round is the median of the samples in some rounds from there on, growth that of the last five rounds
over that of rounds 10 to 14. Missing a mark fails the run.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.measure import fail, family, fedloom_run, keep, memory

ENGINES = ("inprocess", "pool")
EARLY, LATE = range(10, 15), range(45, 50)  # rounds done
EVERY = 0.1  # seconds between two samples
MARKS = {"peak_mib": 1536.0, "growth": 0.05, "first_round_seconds": 20.0}


class Sample(NamedTuple):
    seconds: float
    rounds: int
    mib: float


def watch(engine: str) -> list[Sample]:
    """Samples from the start of the run to its end."""
    with tempfile.TemporaryDirectory() as folder:
        run, said, samples, started = Path(folder) / "run", Path(folder) / "said", list[Sample](), time.perf_counter()
        command = fedloom_run(run, "--preset", "crowd", "--engine", engine, "--workers", "2")
        with said.open("w") as output:
            process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)
        while process.poll() is None:
            samples.append(Sample(time.perf_counter() - started, lines(run / "metrics.jsonl"), memory(family(process.pid))))
            time.sleep(EVERY)
        if process.returncode:
            sys.exit(said.read_text()[-2000:])
    return samples


def lines(journal: Path) -> int:
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


def summary(samples: list[Sample]) -> dict[str, float]:
    """The figures that have marks, and what they come from."""
    early, late = (statistics.median(s.mib for s in samples if s.rounds in span) for span in (EARLY, LATE))
    return {
        "peak_mib": max(s.mib for s in samples),
        "round_10_mib": early,
        "growth": late / early - 1,
        "first_round_seconds": next(s.seconds for s in samples if s.rounds),
        "run_seconds": samples[-1].seconds,
        "samples": len(samples),
    }


def main() -> None:
    """Measure, print, and fail where a mark is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/crowd.json"))
    asked = parser.parse_args()
    results = {engine: summary(watch(engine)) for engine in ENGINES}
    keep(results, asked.json)
    for engine, r in results.items():
        print(f"{engine:<12}" + "   ".join(f"{name} {figure:.3f}" for name, figure in r.items()))
    fail([f"{e} {name} {r[name]:.3f}, mark {mark:g}" for e, r in results.items() for name, mark in MARKS.items() if r[name] > mark])


if __name__ == "__main__":
    main()
