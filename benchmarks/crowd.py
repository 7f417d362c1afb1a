"""Does memory stay flat? `fedloom run --preset crowd`: 100,000 clients with a memory each, 100 a round, 50 rounds of SCAFFOLD.

    python -m benchmarks.crowd [--only rounds,own] [--json FILE] [--own-json FILE]

The run and its workers are watched from outside: PSS, summed over its processes, ten times a second, and how many rounds it has
written down. Memory at a round is the median of the samples in some rounds from there on, growth that of the last five rounds
over that of rounds 10 to 14.

The second case, `own`, is Ditto: every client has a model of its own, and when the rounds are over every one of them is scored.
Crowds of three sizes say what a further client takes: in the rounds, where it brings its data, and on top of that in the scoring,
where it brings a row of every table of clients by classes and its line in result.json. Missing a mark fails the run.
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
SIZES = (1_000, 10_000, 100_000)
ROUNDS = 10  # of the second case
OWN_MARKS = {"rounds_bytes": 4096.0, "scoring_bytes": 1024.0}  # of a further client


class Sample(NamedTuple):
    seconds: float
    rounds: int
    mib: float


class Watched(NamedTuple):
    """A run from its start to its end, and the size of what it came to."""

    samples: list[Sample]
    result_bytes: int


def watch(*options: str) -> Watched:
    """A run of the preset with these options."""
    with tempfile.TemporaryDirectory() as folder:
        run, said, samples, started = (
            Path(folder) / "run",
            Path(folder) / "said",
            list[Sample](),
            time.perf_counter(),
        )
        command = fedloom_run(run, "--preset", "crowd", *options)
        with said.open("w") as output:
            process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)
        while process.poll() is None:
            samples.append(
                Sample(
                    time.perf_counter() - started,
                    lines(run / "metrics.jsonl"),
                    memory(family(process.pid)),
                )
            )
            time.sleep(EVERY)
        if process.returncode:
            sys.exit(said.read_text()[-2000:])
        return Watched(samples, (run / "result.json").stat().st_size)


def lines(journal: Path) -> int:
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


def summary(samples: list[Sample]) -> dict[str, float]:
    """The figures that have marks, and what they come from."""
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


def own(clients: int) -> dict[str, float]:
    """A crowd of that size with models of its own: memory in the rounds, and the most while all are scored."""
    crowd = (
        f"data.name=crowd-{clients}",
        f"data.clients={clients}",
        f"evaluate.every={ROUNDS}",
        "evaluate.batch=1000",
    )
    told = [word for setting in crowd for word in ("--set", setting)]
    samples, result = watch(
        "--method", "ditto", "--rounds", str(ROUNDS), "--engine", "inprocess", *told
    )
    scoring = [s for s in samples if s.rounds == ROUNDS]
    return {
        "rounds_mib": statistics.median(s.mib for s in samples if 0 < s.rounds < ROUNDS),
        "scoring_mib": max(s.mib for s in scoring),
        "scoring_seconds": scoring[-1].seconds - scoring[0].seconds,
        "result_mib": result / 2**20,
    }


def further(found: dict[int, dict[str, float]]) -> dict[str, float]:
    """Bytes that a further client takes in the rounds, and on top of that in the scoring."""
    (few, small), *_, (many, large) = found.items()
    grown = {
        name: (large[name] - small[name]) * 2**20 / (many - few)
        for name in ("rounds_mib", "scoring_mib")
    }
    return {
        "rounds_bytes": grown["rounds_mib"],
        "scoring_bytes": grown["scoring_mib"] - grown["rounds_mib"],
    }


def shown(name: str, figures: dict[str, float]) -> None:
    """One line of figures."""
    print(
        f"{name:<18}" + "   ".join(f"{what} {figure:.3f}" for what, figure in figures.items()),
        flush=True,
    )


def missed(name: str, figures: dict[str, float], marks: dict[str, float]) -> list[str]:
    """The figures that are above their marks."""
    return [
        f"{name} {what} {figures[what]:.3f}, mark {mark:g}"
        for what, mark in marks.items()
        if figures[what] > mark
    ]


def over_rounds(path: Path) -> list[str]:
    """The first case, with either engine."""
    results = {
        engine: summary(watch("--engine", engine, "--workers", "2").samples) for engine in ENGINES
    }
    keep(results, path)
    for engine, figures in results.items():
        shown(engine, figures)
    return [
        sentence
        for engine, figures in results.items()
        for sentence in missed(engine, figures, MARKS)
    ]


def of_own_models(path: Path) -> list[str]:
    """The second case, with crowds of all sizes."""
    results = {}
    for clients in SIZES:
        results[clients] = own(clients)
        shown(f"{clients:,} clients", results[clients])
    client = further(results)
    keep({"sizes": results, "further client": client}, path)
    shown("a further client", client)
    return missed("a further client", client, OWN_MARKS)


def main() -> None:
    """Measure, print, and fail where a mark is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="rounds,own")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/crowd.json"))
    parser.add_argument("--own-json", type=Path, default=Path("benchmarks/results/crowd-own.json"))
    asked = parser.parse_args()
    cases = {
        "rounds": lambda: over_rounds(asked.json),
        "own": lambda: of_own_models(asked.own_json),
    }
    fail([sentence for name in asked.only.split(",") for sentence in cases[name]()])


if __name__ == "__main__":
    main()
