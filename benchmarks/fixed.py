"""The fixed cost of `fedloom run` besides its rounds: LeNet-5 on packaged data (the preset w1).

    python -m benchmarks.fixed [--repeats N] [--json FILE]

A run of one round and a run of many give the time per round, including evaluation and checkpoint.
The fixed cost is the time of the one-round run minus one round: imports, data, model, checks and
the start of workers. All are medians of wall time. The time of `import torch`, a lower bound for
any run, is measured too. Exceeding the limit fails the benchmark.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.measure import fail, fedloom_run, save

ENGINES = ("inprocess", "pool")
MANY_ROUNDS = 11
LIMIT = 3.5  # seconds


def seconds(command: list[str], folder: Path) -> float:
    """Wall time of a command that must succeed."""
    started = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    return time.perf_counter() - started


def time_run(engine: str, rounds: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        options = ("--preset", "w1", "--engine", engine, "--workers", "2", "--rounds", str(rounds))
        return seconds(fedloom_run(Path(folder) / "run", *options), Path(folder))


def time_import() -> float:
    return seconds([sys.executable, "-c", "import torch"], Path())


def measure_once() -> dict[str, dict[str, float]]:
    """All times, each measured once."""
    times = {"import torch": {"fixed_seconds": time_import()}}
    for engine in ENGINES:
        one, many = time_run(engine, 1), time_run(engine, MANY_ROUNDS)
        per_round = (many - one) / (MANY_ROUNDS - 1)
        times[f"fedloom run, {engine}"] = {
            "fixed_seconds": one - per_round,
            "round_seconds": per_round,
        }
    return times


def medians(repeats: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """The median of every time over the repeats."""
    return {
        name: {key: statistics.median(repeat[name][key] for repeat in repeats) for key in times}
        for name, times in repeats[0].items()
    }


def main() -> None:
    """Measure, print, and fail if the limit is exceeded."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/fixed.json"))
    arguments = parser.parse_args()
    results = medians([measure_once() for _ in range(arguments.repeats)])
    save(results, arguments.json)
    for name, times in results.items():
        cells = [f"{key.removesuffix('_seconds')} {value:.2f} s" for key, value in times.items()]
        print(f"{name:<26}{'   '.join(cells)}")
    runs = {name: r["fixed_seconds"] for name, r in results.items() if "round_seconds" in r}
    fail([f"{name} {t:.2f} s, limit {LIMIT} s" for name, t in runs.items() if t > LIMIT])


if __name__ == "__main__":
    main()
