"""Memory with very many clients: `fedloom run --preset crowd` and clients with personal models.

    python -m benchmarks.crowd [--only rounds,own] [--json FILE] [--own-json FILE]

The first case, `rounds`: 100,000 clients with a state each, 100 per round, 50 rounds of SCAFFOLD.
Does memory stay flat? The run and its workers are observed from outside, ten times per second:
PSS, summed over the processes, and the number of rounds recorded so far. "Memory at round 10" is
the median of the samples in rounds 10 to 14; growth compares the last five rounds with these.

The second case, `own`: Ditto, where every client has a personal model, and all of them are scored
after the last round. Three numbers of clients show what one more client costs: its data during
the rounds, and on top of that, while scoring, a row of every clients-by-classes table and a line
in result.json.

Exceeding a limit fails the benchmark.
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

from benchmarks.measure import fail, family, fedloom_run, memory, save

ENGINES = ("inprocess", "pool")
EARLY, LATE = range(10, 15), range(45, 50)  # completed rounds
INTERVAL = 0.1  # seconds between two samples
LIMITS = {"peak_mib": 1536.0, "growth": 0.05, "first_round_seconds": 20.0}
SIZES = (1_000, 10_000, 100_000)
ROUNDS = 10  # of the second case
CLIENT_LIMITS = {"rounds_bytes": 4096.0, "scoring_bytes": 1024.0}  # of one more client


class Sample(NamedTuple):
    seconds: float
    rounds: int
    mib: float


class Observed(NamedTuple):
    """Samples from the start of a run to its end, and the size of its result.json."""

    samples: list[Sample]
    result_bytes: int


def observe(*options: str) -> Observed:
    """Run the preset with these options and sample its memory."""
    with tempfile.TemporaryDirectory() as folder:
        run, log = Path(folder) / "run", Path(folder) / "log"
        samples: list[Sample] = []
        started = time.perf_counter()
        command = fedloom_run(run, "--preset", "crowd", *options)
        with log.open("w") as output:
            process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)
        while process.poll() is None:
            elapsed = time.perf_counter() - started
            rounds = count_lines(run / "metrics.jsonl")
            samples.append(Sample(elapsed, rounds, memory(family(process.pid))))
            time.sleep(INTERVAL)
        if process.returncode:
            sys.exit(log.read_text()[-2000:])
        return Observed(samples, (run / "result.json").stat().st_size)


def count_lines(journal: Path) -> int:
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


def summary(samples: list[Sample]) -> dict[str, float]:
    """The measurements that have limits, and those they derive from."""
    early, late = (
        statistics.median(s.mib for s in samples if s.rounds in span) for span in (EARLY, LATE)
    )
    return {
        "peak_mib": max(s.mib for s in samples),
        "round_10_mib": early,
        "growth": late / early - 1,
        "first_round_seconds": next(s.seconds for s in samples if s.rounds),
        "run_seconds": samples[-1].seconds,
        "samples": len(samples),
    }


def with_personal_models(clients: int) -> dict[str, float]:
    """Memory of that many clients during the rounds, and the peak while all models are scored."""
    settings = (
        f"data.name=crowd-{clients}",
        f"data.clients={clients}",
        f"evaluate.every={ROUNDS}",
        "evaluate.batch=1000",
    )
    sets = [argument for setting in settings for argument in ("--set", setting)]
    samples, result_bytes = observe(
        "--method", "ditto", "--rounds", str(ROUNDS), "--engine", "inprocess", *sets
    )
    scoring = [s for s in samples if s.rounds == ROUNDS]
    return {
        "rounds_mib": statistics.median(s.mib for s in samples if 0 < s.rounds < ROUNDS),
        "scoring_mib": max(s.mib for s in scoring),
        "scoring_seconds": scoring[-1].seconds - scoring[0].seconds,
        "result_mib": result_bytes / 2**20,
    }


def per_client(by_size: dict[int, dict[str, float]]) -> dict[str, float]:
    """Bytes that one more client takes during the rounds, and on top of that while scoring."""
    (few, small), *_, (many, large) = by_size.items()

    def growth(name: str) -> float:
        return (large[name] - small[name]) * 2**20 / (many - few)

    during_rounds = growth("rounds_mib")
    return {
        "rounds_bytes": during_rounds,
        "scoring_bytes": growth("scoring_mib") - during_rounds,
    }


def show(name: str, measured: dict[str, float]) -> None:
    """Print one line of measurements."""
    cells = "   ".join(f"{key} {value:.3f}" for key, value in measured.items())
    print(f"{name:<18}{cells}", flush=True)


def exceeded(name: str, measured: dict[str, float], limits: dict[str, float]) -> list[str]:
    """The measurements that are above their limits."""
    return [
        f"{name} {key} {measured[key]:.3f}, limit {limit:g}"
        for key, limit in limits.items()
        if measured[key] > limit
    ]


def over_rounds(path: Path) -> list[str]:
    """The first case, with each engine; returns the limits that were exceeded."""
    results = {
        engine: summary(observe("--engine", engine, "--workers", "2").samples) for engine in ENGINES
    }
    save(results, path)
    problems = []
    for engine, measured in results.items():
        show(engine, measured)
        problems += exceeded(engine, measured, LIMITS)
    return problems


def over_sizes(path: Path) -> list[str]:
    """The second case, with every number of clients; returns the limits that were exceeded."""
    results = {}
    for clients in SIZES:
        results[clients] = with_personal_models(clients)
        show(f"{clients:,} clients", results[clients])
    one_more = per_client(results)
    save({"sizes": results, "further client": one_more}, path)
    show("one more client", one_more)
    return exceeded("one more client", one_more, CLIENT_LIMITS)


def main() -> None:
    """Measure, print, and fail if a limit is exceeded."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="rounds,own")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/crowd.json"))
    parser.add_argument("--own-json", type=Path, default=Path("benchmarks/results/crowd-own.json"))
    arguments = parser.parse_args()
    cases = {
        "rounds": lambda: over_rounds(arguments.json),
        "own": lambda: over_sizes(arguments.own_json),
    }
    fail([problem for name in arguments.only.split(",") for problem in cases[name]()])


if __name__ == "__main__":
    main()
