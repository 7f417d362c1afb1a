"""The fixed cost of a run: what `fedloom run` takes besides its rounds, on LeNet-5 and packaged data (the preset w1).

    python -m benchmarks.fixed [--repeats N] [--json FILE]

A run of one round and a run of many give the price of a round, evaluation and checkpoint included; the fixed cost is the run of
one round less that price. It holds imports, data, model, checks and the start of workers. Medians of wall time. Beside it stands
the time of `import torch`, below which no run can start. Missing the mark fails the run.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.measure import fail, fedloom_run, keep

ENGINES = ("inprocess", "pool")
MANY = 11
MARK = 3.5


def seconds(command: list[str], folder: Path) -> float:
    """Wall time of a command that must succeed."""
    started = time.perf_counter()
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if ended.returncode:
        sys.exit(ended.stderr[-2000:])
    return time.perf_counter() - started


def of_run(engine: str, rounds: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        options = ("--preset", "w1", "--engine", engine, "--workers", "2", "--rounds", str(rounds))
        return seconds(fedloom_run(Path(folder) / "run", *options), Path(folder))


def of_import() -> float:
    return seconds([sys.executable, "-c", "import torch"], Path())


def once() -> dict[str, dict[str, float]]:
    """Every figure, measured once."""
    found = {"import torch": {"fixed_seconds": of_import()}}
    for engine in ENGINES:
        one, many = of_run(engine, 1), of_run(engine, MANY)
        price = (many - one) / (MANY - 1)
        found[f"fedloom run, {engine}"] = {"fixed_seconds": one - price, "round_seconds": price}
    return found


def main() -> None:
    """Measure, print, and fail where the mark is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/fixed.json"))
    asked = parser.parse_args()
    seen = [once() for _ in range(asked.repeats)]
    results = {
        name: {figure: statistics.median(turn[name][figure] for turn in seen) for figure in figures}
        for name, figures in seen[0].items()
    }
    keep(results, asked.json)
    for name, r in results.items():
        print(
            f"{name:<26}"
            + "".join(f"{figure.removesuffix('_seconds')} {s:.2f} s   " for figure, s in r.items())
        )
    runs = {name: r["fixed_seconds"] for name, r in results.items() if "round_seconds" in r}
    fail([f"{name} {fixed:.2f} s, mark {MARK} s" for name, fixed in runs.items() if fixed > MARK])


if __name__ == "__main__":
    main()
