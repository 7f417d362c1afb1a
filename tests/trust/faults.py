"""Failing clients in real runs: every run completes, stays finite and names every fault.

    python -m trust.faults [--rounds 200] [--engines inprocess,pool,ray] [--faults raises,NaN]

Each fault hits every reply with probability 0.3, and in a second run 6 of 20 clients always. The
clients that a run rejects must be exactly those that were hit. Where a fault only takes replies
away, the accuracy must stay within 3 points of the clean run's. Prints a table, and exits with 1 if
anything else happened. Ray runs in a network namespace: start it with scripts/loopback.sh.

A stopped process cannot be used in-process, where it would be this one: there, "hung" sleeps.
"""

import argparse
import math
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from fedloom.core.key import Key
from fedloom.core.request import Broadcast, Task
from fedloom.core.server import Reply
from fedloom.core.simulation import Engine
from fedloom.core.user_code import allow
from fedloom.engines.forkserver import ForkServer
from fedloom.experiment.prepare import PreparedRun, prepare
from fedloom.experiment.train import TrainedRun, train
from fedloom.settings.config import load
from trust.faulty_clients import FAULTS, is_hit

ENGINES = ("inprocess", "pool", "ray")
ON_THE_WAY = ("dropped", "claims 1e8 samples")  # faults of the reply, not of the client
ALL_FAULTS = ("dropped", "slow", "raises", "hung", "NaN", "1e30", "3e38", "claims 1e8 samples")
TIMED = ("slow", "hung")  # the others need no limit, and on a busy machine anyone may be late
MODES = {"p = 0.3": {"share": 0.3, "always": 0}, "6 of 20": {"share": 0.0, "always": 6}}
MAX_LOSS = 0.03  # of accuracy, against the clean run; 1e30 and 3e38 are held to it as well
SETTINGS: dict[str, Any] = {
    "model": "mlp",
    "seed": 11,
    "data": {"clients": 20, "per_class": 100, "partition": "dirichlet(alpha=1.0)"},
    "sample": {"per_round": 5},
    "train": {"lr": 0.05, "batch": 20},
    "evaluate": {"every": 10, "batch": 500},
}


@dataclass(frozen=True)
class Faulty:
    """An engine that loses or changes the replies of clients that are hit."""

    engine: Engine
    fault: str
    key: Key
    mode: dict[str, Any]

    def map(self, sent: Broadcast, tasks: Iterable[Task]) -> Iterator[tuple[int, Any]]:
        for client, answer in self.engine.map(sent, tasks):
            key = client_key(self.key, sent.round, client)
            if not isinstance(answer, Reply) or not is_hit(key, client, **self.mode):
                yield client, answer
            elif self.fault != "dropped":
                yield client, replace(answer, samples=10**8)

    def close(self) -> None:
        self.engine.close()


def client_key(root: Key, round: int, client: int) -> Key:
    """The key of a client in a round, as `job_for` makes it."""
    return root.fold("round", round, "client", client)


@dataclass(frozen=True)
class Outcome:
    """What a run with failing clients did. problems: what it should not have done."""

    fault: str
    mode: str
    engine: str
    accuracy: float
    hit: int
    rejected: int
    skipped: int
    seconds: float
    problems: tuple[str, ...]


def run(
    fault: str,
    mode: str,
    engine: str,
    rounds: int,
    timeout: float,
    clean: float | None = None,
    fork_server: ForkServer | None = None,
) -> Outcome:
    """A run of 20 clients, five of them per round. clean: the accuracy without faults, if known."""
    hits = MODES.get(mode, {"share": 0.0, "always": 0})
    method = "fedavg"
    if fault in FAULTS:
        client_fault = "slow" if fault == "hung" and engine == "inprocess" else fault
        arguments = ", ".join(f"{k}={v!r}" for k, v in {"fault": client_fault, **hits}.items())
        reference = f"{Path(__file__).with_name('faulty_clients.py')}:faulty"
        allow([reference])
        method = f"{reference}({arguments})"
    guard = {"timeout": timeout}
    config = load(
        {**SETTINGS, "method": method, "engine": engine, "rounds": rounds, "guard": guard}
    )
    started = time.perf_counter()
    with prepare(config, fork_server=fork_server) as prepared:
        if fault in ON_THE_WAY:
            prepared = _with_faults_on_the_way(prepared, fault, hits)
        trained = train(prepared)
        problems = tuple(_problems(prepared, trained, hits, clean))
    return Outcome(
        fault,
        mode,
        engine,
        trained.result.accuracy,
        sum(len(_hit(prepared, record, hits)) for record in trained.history),
        trained.result.rejected,
        trained.result.skipped,
        time.perf_counter() - started,
        problems,
    )


def _with_faults_on_the_way(prepared: PreparedRun, fault: str, hits: dict[str, Any]) -> PreparedRun:
    simulation = prepared.simulation
    engine = Faulty(simulation.engine, fault, simulation.federation.key, hits)
    return replace(prepared, simulation=replace(simulation, engine=engine))


def _hit(prepared: PreparedRun, record: Any, hits: dict[str, Any]) -> set[int]:
    """The participants of a round that were hit."""
    root = prepared.simulation.federation.key
    return {
        client
        for client in record.participants
        if is_hit(client_key(root, record.round - 1, client), client, **hits)
    }


def _problems(
    prepared: PreparedRun, trained: TrainedRun, hits: dict[str, Any], clean: float | None
) -> Iterator[str]:
    if not all(bool(torch.isfinite(t).all()) for t in trained.state.params.values()):
        yield "the model is not finite"
    for record in trained.history:
        expected = _hit(prepared, record, hits)
        if expected != set(record.rejected):
            yield f"round {record.round}: hit {sorted(expected)}, rejected {record.rejected}"
    accuracy = trained.result.accuracy
    if clean is not None and not (math.isfinite(accuracy) and accuracy >= clean - MAX_LOSS):
        yield f"accuracy {accuracy:.3f} is more than {MAX_LOSS} below {clean:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Runs with failing clients.")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--faults", default=",".join(ALL_FAULTS))
    parser.add_argument("--timeout", type=float, default=0.5)
    given = parser.parse_args()
    clean = run("none", "", "inprocess", given.rounds, 3600, None).accuracy
    print(
        f"{'fault':20}{'hits':10}{'engine':11}accuracy   hit rejected skipped seconds", flush=True
    )
    print(f"{'none':20}{'':10}{'inprocess':11}{clean:8.4f}", flush=True)
    failed = 0
    for engine in given.engines.split(","):
        for fault in given.faults.split(","):
            for mode in MODES:
                limit = given.timeout if fault in TIMED else 3600
                outcome = run(fault, mode, engine, given.rounds, limit, clean)
                failed += bool(outcome.problems)
                print(
                    f"{fault:20}{mode:10}{engine:11}{outcome.accuracy:8.4f}{outcome.hit:6}"
                    f"{outcome.rejected:9}{outcome.skipped:8}{outcome.seconds:8.1f}  "
                    f"{'; '.join(outcome.problems[:2]) or 'ok'}",
                    flush=True,
                )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
