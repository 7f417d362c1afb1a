"""A contestant of benchmarks.engines: a process that plays rounds of a workload on command.

    python -m benchmarks.contestant WORK floor WHICH OF     the bare loop on every OF-th client of the cohort, from the WHICH-th
    python -m benchmarks.contestant WORK ENGINE             our engine, in processes set up as `fedloom run` does

At every line it reads it takes the next turn, and says so when it is done: get ready, play, get ready, play, ...
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.overhead import Bare, coloured
from fedloom.core.key import Key
from fedloom.core.round import init_state, rounds
from fedloom.core.state import MemoryStore
from fedloom.data.dataset import Dataset, Split
from fedloom.engines.malloc import keep_freed_memory
from fedloom.experiment.prepare import PreparedRun, prepare
from fedloom.settings.config import load

WORK: dict[str, dict[str, Any]] = {
    "w1": {
        "model": "lenet5",
        "data": {"clients": 100, "partition": "iid"},
        "sample": {"per_round": 10},
        "train": {"lr": 0.01, "batch": 10},
    },
    "w2": {
        "model": "resnet8(norm=group)",
        "data": {"clients": 16, "partition": "iid"},
        "sample": {"per_round": 16},
        "train": {"lr": 0.01, "batch": 32, "epochs": 2},
    },
    "w3": {
        "model": "mlp(width=64, layers=1)",
        "data": {"clients": 10_000, "partition": "iid"},
        "sample": {"per_round": 100},
        "train": {"lr": 0.01, "batch": 20},
    },
}
TURN = "turn"


def data_of(work: str) -> Dataset:
    """Noise of the right shape and size."""
    if work == "w2":
        return coloured()
    n = 200_000 if work == "w3" else 10_000
    g = Key.root(0).fold("bench").generator()
    x, y = (
        torch.randint(0, 256, (n, 1, 28, 28), dtype=torch.uint8, generator=g),
        torch.randint(0, 10, (n,), generator=g),
    )
    return Dataset(
        "noise",
        "image",
        Split(x, y),
        Split(x[:100], y[:100]),
        tuple(map(str, range(10))),
        (0.5,),
        (0.25,),
    )


def study_of(work: str, engine: str) -> PreparedRun:
    """The workload on one of our engines."""
    prepared = prepare(
        load({**WORK[work], "rounds": 100_000, "engine": engine, "workers": 2}), data_of(work)
    )
    if (why_not := getattr(prepared.simulation.engine, "why_not", None)) is not None:
        sys.exit(why_not)
    return prepared


def floor(prepared: PreparedRun, which: int, of: int) -> Iterator[None]:
    """Rounds of the bare loop; its batches are drawn before the clock starts."""
    bare, weights = Bare(prepared), dict(prepared.model.state_dict())
    for number in itertools.count():
        cohort = bare.orders(number)[which::of]
        yield
        weights = bare.round(weights, cohort)
        yield


def ours(prepared: PreparedRun) -> Iterator[None]:
    """Rounds of ours, which draw their batches themselves."""
    yield
    for _ in rounds(
        prepared.simulation,
        init_state(prepared.simulation, prepared.model),
        MemoryStore(),
        prepared.config.rounds,
    ):
        yield
        yield


def main(work: str, name: str, *share: str) -> None:
    """Take turns until nobody asks any more."""
    torch.set_num_threads(1)
    if name == "floor":
        turns, prepared = floor(study_of(work, "inprocess"), *map(int, share)), None
    else:
        keep_freed_memory()
        prepared = study_of(work, name)
        turns = ours(prepared)
    for _ in turns:
        print(TURN, flush=True)
        if not sys.stdin.readline():
            break
    if prepared is not None:
        prepared.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
