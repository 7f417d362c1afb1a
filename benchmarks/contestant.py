"""A contestant of benchmarks.engines: a process that runs rounds of a workload on command.

    python -m benchmarks.contestant WORK floor FIRST STEP   the plain PyTorch loop on every STEP-th
                                                            client of the cohort, from the FIRST-th
    python -m benchmarks.contestant WORK ENGINE             one of our engines, set up as in
                                                            `fedloom run`

For each line on stdin it takes the next turn and prints a line when done. Turns alternate:
prepare a round, run it, prepare the next, run it, ...
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.overhead import PlainLoop, colour_noise
from fedloom.core.key import Key
from fedloom.core.round import rounds
from fedloom.core.simulation import init_state
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
    """Noise of the workload's shape and size."""
    if work == "w2":
        return colour_noise()
    n = 200_000 if work == "w3" else 10_000
    g = Key.root(0).fold("bench").generator()
    x = torch.randint(0, 256, (n, 1, 28, 28), dtype=torch.uint8, generator=g)
    y = torch.randint(0, 10, (n,), generator=g)
    train, test, classes = Split(x, y), Split(x[:100], y[:100]), tuple(map(str, range(10)))
    return Dataset("noise", "image", train, test, classes, (0.5,), (0.25,))


def prepare_work(work: str, engine: str) -> PreparedRun:
    """The workload on one of our engines; exits if the engine declines it."""
    settings = {**WORK[work], "rounds": 100_000, "engine": engine, "workers": 2}
    prepared = prepare(load(settings), data_of(work))
    if (why_not := getattr(prepared.simulation.engine, "why_not", None)) is not None:
        sys.exit(why_not)
    return prepared


def plain_turns(prepared: PreparedRun, first: int, step: int) -> Iterator[None]:
    """Turns of the plain loop; its batches are drawn while it prepares a round."""
    loop, weights = PlainLoop(prepared), dict(prepared.model.state_dict())
    for number in itertools.count():
        cohort = loop.orders(number)[first::step]
        yield
        weights = loop.round(weights, cohort)
        yield


def our_turns(prepared: PreparedRun) -> Iterator[None]:
    """Turns of ours, which draws its batches within the round."""
    simulation = prepared.simulation
    state = init_state(simulation, prepared.model)
    yield
    for _ in rounds(simulation, state, MemoryStore(), prepared.config.rounds):
        yield
        yield


def main(work: str, name: str, *share: str) -> None:
    """Take turns until stdin ends."""
    torch.set_num_threads(1)
    if name == "floor":
        turns, prepared = plain_turns(prepare_work(work, "inprocess"), *map(int, share)), None
    else:
        keep_freed_memory()
        prepared = prepare_work(work, name)
        turns = our_turns(prepared)
    for _ in turns:
        print(TURN, flush=True)
        if not sys.stdin.readline():
            break
    if prepared is not None:
        prepared.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
