"""The overhead of a round over its gradient steps: ours compared with a plain PyTorch loop.

    python -m benchmarks.overhead [--rounds N] [--json FILE]

The plain loop makes exactly the same gradient steps: the same cohort, the same batches in the
same order, the same model, SGD by torch.optim, and the mean of the clients' weights. Its data are
in memory, normalised in advance; ours are stored as bytes and normalised batch by batch. Neither
evaluates or writes checkpoints. Rounds of the two alternate, on one thread; all numbers are
medians. Ratios above the limits fail the benchmark.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.measure import fail, save
from fedloom.core.key import Key
from fedloom.core.round import rounds
from fedloom.core.simulation import init_state
from fedloom.core.state import MemoryStore, ServerState
from fedloom.data.dataset import Dataset, Split
from fedloom.experiment.prepare import PreparedRun, prepare
from fedloom.settings.config import load

LENET = {
    "rounds": 10_000,
    "engine": "inprocess",
    "model": "lenet5",
    "data": {"clients": 100, "partition": "iid"},
    "train": {"lr": 0.01, "batch": 10},
    "sample": {"per_round": 10},
}
RESNET = {
    "rounds": 10_000,
    "engine": "inprocess",
    "model": "resnet8(norm=group)",
    "data": {"clients": 16, "partition": "iid"},
    "train": {"lr": 0.01, "batch": 32, "epochs": 2},
    "sample": {"per_round": 2},
}
WARM_UP = 2  # rounds that are not timed, in which the allocator warms up
LIMITS = {"lenet5, batch 10": 1.05, "resnet8, batch 32": 1.02}


def colour_noise(clients: int = 16, samples: int = 128) -> Dataset:
    """Colour noise of CIFAR's shape: the time of a gradient step does not depend on the image."""
    g = Key.root(0).fold("bench").generator()
    n = clients * samples
    x = torch.randint(0, 256, (n, 3, 32, 32), dtype=torch.uint8, generator=g)
    y = torch.randint(0, 10, (n,), generator=g)
    classes = tuple(map(str, range(10)))
    return Dataset(
        "noise", "image", Split(x, y), Split(x[:10], y[:10]), classes, (0.5,) * 3, (0.25,) * 3
    )


class PlainLoop:
    """A straightforward PyTorch loop that shares only the model and the sample order with ours."""

    def __init__(self, prepared: PreparedRun) -> None:
        self.prepared, train = prepared, prepared.config.train
        self.lr, self.batch, self.epochs = train.lr, train.batch, train.epochs
        rows, clients = torch.arange(len(prepared.dataset.train)), prepared.clients
        all_data = clients[0].__class__(clients.split, rows, clients.normalise)
        self.x, self.y = all_data.batch(rows, None)
        self.model: nn.Module = prepared.simulation.federation.build()

    def orders(self, round: int) -> list[tuple[Tensor, list[Tensor]]]:
        """The rows of every sampled client and its order in each epoch, drawn as in our rounds."""
        simulation, clients = self.prepared.simulation, self.prepared.clients
        key = simulation.federation.key
        orders = []
        for client in simulation.sampler(round, key.fold("cohort", round), clients.sizes):
            data = clients[client]
            client_key = key.fold("round", round, "client", client, "phase", 0)
            epochs = [
                torch.randperm(len(data), generator=client_key.fold("epoch", e).generator())
                for e in range(self.epochs)
            ]
            orders.append((data.rows, epochs))
        return orders

    def round(
        self, weights: dict[str, Tensor], cohort: list[tuple[Tensor, list[Tensor]]]
    ) -> dict[str, Tensor]:
        """One round of FedAvg."""
        total = {n: torch.zeros_like(t) for n, t in weights.items()}
        for rows, epochs in cohort:
            self.model.load_state_dict(weights)
            self.model.train()
            optimizer = torch.optim.SGD(self.model.parameters(), lr=self.lr)
            for order in epochs:
                for positions in order.split(self.batch):
                    index = rows[positions]
                    loss = F.cross_entropy(self.model(self.x[index]), self.y[index])
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
            for n, t in self.model.state_dict().items():
                total[n] += t / len(cohort)
        return total


def measure(settings: dict, dataset: Dataset | None, count: int) -> dict[str, float]:
    """Median seconds per round of both, in alternation, and their ratio; the weights must agree."""
    prepared = prepare(load(settings), dataset)
    loop = PlainLoop(prepared)
    state: ServerState = init_state(prepared.simulation, prepared.model)
    plain_weights = dict(state.params)
    ours = rounds(prepared.simulation, state, MemoryStore(), settings["rounds"])
    seconds: list[tuple[float, float]] = []
    for number in range(count + WARM_UP):
        cohort = loop.orders(number)
        started = time.perf_counter()
        plain_weights = loop.round(plain_weights, cohort)
        middle = time.perf_counter()
        state, _ = next(ours)
        seconds.append((middle - started, time.perf_counter() - middle))
        if number == 1:  # in later rounds, rounding errors have grown
            difference = max(
                float((plain_weights[name] - tensor).abs().max())
                for name, tensor in state.params.items()
            )
    if difference > 1e-5:
        sys.exit(
            "the two loops did not make the same steps: "
            f"weights differ by {difference:.2e} after two rounds"
        )
    plain_seconds, our_seconds = map(statistics.median, zip(*seconds[WARM_UP:], strict=True))
    return {
        "bare_seconds": plain_seconds,
        "round_seconds": our_seconds,
        "ratio": our_seconds / plain_seconds,
        "pairs": count,
        "largest_weight_difference": difference,
    }


def main() -> None:
    """Measure, print, and fail if a limit is exceeded."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=40, help="pairs of rounds to time")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/overhead.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    results = {
        "lenet5, batch 10": measure(LENET, None, arguments.rounds),
        "resnet8, batch 32": measure(RESNET, colour_noise(), max(10, arguments.rounds // 2)),
    }
    save(results, arguments.json)
    print(f"{'work':<20}{'plain, s':>10}{'ours, s':>10}{'ratio':>8}{'limit':>8}")
    for name, r in results.items():
        times = f"{r['bare_seconds']:>10.4f}{r['round_seconds']:>10.4f}"
        print(f"{name:<20}{times}{r['ratio']:>8.3f}{LIMITS[name]:>8.2f}")
    fail([f"{name} {r['ratio']:.3f}" for name, r in results.items() if r["ratio"] > LIMITS[name]])


if __name__ == "__main__":
    main()
