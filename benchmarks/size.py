"""Memory and bytes at scale: large cohorts, large models, a million clients, large memories.

    python -m benchmarks.size [--only cohort,huge,clients,scaffold,pool] [--json FILE]
                              [--source FOLDER]

Every run is a `fedloom run`, observed from outside. Memory is the largest resident set size of its
process, which the kernel records: sampling would miss peaks that are shorter than its interval,
such as those of an evaluation. The page cache, which holds what a process has written to a file
until the disk has it, is not part of it. Bytes written are those that the kernel counts for the
processes, less those of files that were deleted before they reached the disk.

cohort     FedAvg, 10 million parameters: peak memory with 10, 50 and 200 clients per round.
huge       FedAvg, 100 million parameters, 10 clients per round: peak memory in models.
clients    a million clients of 12 samples, 100 per round: time to the first round, and memory on
           top of the data.
scaffold   SCAFFOLD, 10 million parameters, 10 clients per round: bytes written per round, relative
           to what changes: the clients' states and the server's.
pool       seconds per round of 10 clients with 10 million parameters, pool against in-process, in
           turns. The first rounds are left out: memory is used for the first time there.

--source: the `src` folder of another version, measured in place of this one and saved as "before".
Exceeding a limit fails the benchmark.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import cpu, fail, family, fedloom_run, save

INTERVAL = 0.05  # seconds between two looks at the processes
MIB = 2**20
WIDTH_10M, WIDTH_100M = 350_000, 3_300_000  # of one hidden layer, 20 features and 10 classes
COHORTS, COHORT_TURNS = (10, 50, 200), 3
COHORT, MILLION = 10, 1_000_000
DATA_MIB = 12 * MILLION * (20 * 4 + 2 * 8) / MIB  # samples, labels and users of the million
SCAFFOLD_ROUNDS = 4
POOL_TURNS, POOL_ROUNDS, POOL_FIRST_ROUNDS = 3, 12, 3
LIMITS = {
    "extra models of 200 clients": 1.0,
    "models": 10.0,
    "first_round_seconds": 6.0,
    "mib_besides_data": 512.0,
    "written_of_changed": 1.2,
    "pool_of_inprocess": 1.0,
}


@dataclass(frozen=True)
class Observed:
    """A run from outside.

    first: seconds, and CPU seconds, until its first round was recorded. round_seconds: of every
    round, as the run has recorded them.
    """

    peak_mib: float
    first: tuple[float, float]
    written_mib: float
    round_seconds: list[float]


def model_mib(width: int) -> float:
    """The size of a model with one hidden layer."""
    return 4 * (width * (20 + 10 + 1) + 10) / MIB


def observe(source: Path | None, *options: str) -> Observed:
    """Run with these options and watch the processes."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if source is not None:
        environment["PYTHONPATH"] = str(source)
    with tempfile.TemporaryDirectory() as folder:
        run, log = Path(folder) / "run", Path(folder) / "log"
        started = time.perf_counter()
        with log.open("w") as output:
            process = subprocess.Popen(
                fedloom_run(run, *options),
                cwd=folder,
                env=environment,
                stdout=output,
                stderr=output,
            )
        first, used, written = (0.0, 0.0), 0.0, 0.0
        while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
            members = family(process.pid)
            used, written = max(used, cpu(members)), max(written, written_mib(members))
            if not first[0] and recorded(run):
                first = time.perf_counter() - started, used
            time.sleep(INTERVAL)
        _, status, usage = ended
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            sys.exit(log.read_text()[-2000:])
        return Observed(usage.ru_maxrss / 1024, first, written, recorded(run))


def recorded(run: Path) -> list[float]:
    """The seconds of the rounds so far."""
    with suppress(OSError, ValueError):
        lines = (run / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line)["seconds"] for line in lines]
    return []


def written_mib(pids: Sequence[int]) -> float:
    """What the processes have written to disks, less what was deleted before it got there."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            lines = Path(f"/proc/{pid}/io").read_text().splitlines()
            counts = {name: int(value) for name, value in (line.split(": ") for line in lines)}
            total += counts["write_bytes"] - counts["cancelled_write_bytes"]
    return total / MIB


def settings(width: int, clients: int, cohort: int, rounds: int, *more: str) -> list[str]:
    """The options for an MLP on synthetic clients, in-process unless `more` names an engine."""
    chosen = (
        f"data.name=crowd-{clients}",
        f"data.clients={clients}",
        "data.partition=user",
        f"model=mlp(width={width}, layers=1)",
        f"sample.per_round={cohort}",
        f"train.lr={0.1 / width:.3g}",
        "train.batch=12",
        "evaluate.every=100",
        *more,
    )
    sets = [word for setting in chosen for word in ("--set", setting)]
    engine = [] if any(setting.startswith("engine=") for setting in more) else ["inprocess"]
    return ["--rounds", str(rounds), *sets, *(["--engine", *engine] if engine else [])]


def cohort(source: Path | None) -> dict[str, float]:
    """Peak memory by the number of clients per round, in models: medians over turns.

    A run may take up to one model more or less when repeated, because of gaps in its heap.
    """
    model = model_mib(WIDTH_10M)
    peaks: dict[int, list[float]] = {size: [] for size in COHORTS}
    for _ in range(COHORT_TURNS):
        for size, found in peaks.items():
            options = settings(WIDTH_10M, COHORTS[-1], size, 2)
            found.append(observe(source, "--method", "fedavg", *options).peak_mib / model)
    medians = {size: statistics.median(found) for size, found in peaks.items()}
    return {
        **{f"models of {size} clients": median for size, median in medians.items()},
        f"extra models of {COHORTS[-1]} clients": medians[COHORTS[-1]] - medians[COHORTS[0]],
    }


def huge(source: Path | None) -> dict[str, float]:
    """Peak memory with a hundred million parameters."""
    seen = observe(source, "--method", "fedavg", *settings(WIDTH_100M, COHORT, COHORT, 1))
    return {"peak_mib": seen.peak_mib, "models": seen.peak_mib / model_mib(WIDTH_100M)}


def clients(source: Path | None) -> dict[str, float]:
    """A million clients with a state each."""
    data = ("--set", f"data.name=crowd-{MILLION}", "--set", f"data.clients={MILLION}")
    seen = observe(source, "--preset", "crowd", "--rounds", "2", "--engine", "inprocess", *data)
    seconds, cpu_seconds = seen.first
    return {
        "first_round_seconds": seconds,
        "first_round_cpu_seconds": cpu_seconds,
        "peak_mib": seen.peak_mib,
        "mib_besides_data": seen.peak_mib - DATA_MIB,
    }


def scaffold(source: Path | None) -> dict[str, float]:
    """Bytes written per round."""
    one, more = (
        observe(source, "--method", "scaffold", *settings(WIDTH_10M, COHORT, COHORT, rounds))
        for rounds in (1, SCAFFOLD_ROUNDS)
    )
    written = (more.written_mib - one.written_mib) / (SCAFFOLD_ROUNDS - 1)
    changed = (COHORT + 2) * model_mib(WIDTH_10M)  # a control of each client; weights and control
    return {
        "written_mib": written,
        "changed_mib": changed,
        "written_of_changed": written / changed,
    }


def pool(source: Path | None) -> dict[str, float]:
    """Seconds per round, in-process and with a pool of two workers."""
    seconds: dict[str, list[float]] = {"inprocess": [], "pool": []}
    for _ in range(POOL_TURNS):
        for engine, found in seconds.items():
            options = settings(WIDTH_10M, COHORT, COHORT, POOL_ROUNDS, f"engine={engine}")
            seen = observe(source, "--method", "fedavg", *options, "--workers", "2")
            found += seen.round_seconds[POOL_FIRST_ROUNDS:]
    medians = {engine: statistics.median(found) for engine, found in seconds.items()}
    return {
        **{f"{engine}_seconds": median for engine, median in medians.items()},
        "pool_of_inprocess": medians["pool"] / medians["inprocess"],
    }


PARTS: dict[str, Callable[[Path | None], dict[str, float]]] = {
    "cohort": cohort,
    "huge": huge,
    "clients": clients,
    "scaffold": scaffold,
    "pool": pool,
}


def main() -> None:
    """Measure the parts, print them, add them to the results, and fail if a limit is exceeded."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/size.json"))
    parser.add_argument("--source", type=Path)
    arguments = parser.parse_args()
    chosen = arguments.only.split(",")
    if unknown := [name for name in chosen if name not in PARTS]:
        parser.error(f"no part '{unknown[0]}'; choose among {', '.join(PARTS)}")
    when = "now" if arguments.source is None else "before"
    results = json.loads(arguments.json.read_text()) if arguments.json.exists() else {}
    problems = []
    for name in chosen:
        source = None if arguments.source is None else arguments.source.absolute()
        measured = PARTS[name](source)
        results.setdefault(name, {})[when] = measured
        save(results, arguments.json)
        cells = "   ".join(f"{key} {value:.3f}" for key, value in measured.items())
        print(f"{name:<10}{cells}", flush=True)
        problems += [
            f"{name}: {key} {measured[key]:.3f}, limit {limit:g}"
            for key, limit in LIMITS.items()
            if key in measured and measured[key] > limit and when == "now"
        ]
    fail(problems)


if __name__ == "__main__":
    main()
