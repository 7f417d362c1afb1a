"""What a round costs beside its gradient steps: our round against a bare PyTorch loop, interleaved, one thread, medians.

    python -m benchmarks.overhead [--rounds N] [--json FILE]

The bare loop does exactly the same gradient steps: the same cohort, the same batches in the same order, the same model, SGD by
torch.optim, the mean of the clients' weights. Its data lie in memory, normalised beforehand; ours are stored as bytes and
normalised batch by batch. Evaluation and checkpoints are left out of both. Ratios above the marks fail the run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedloom.core.key import Key
from fedloom.core.round import init_state, rounds
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
MARKS = {"lenet5, batch 10": 1.05, "resnet8, batch 32": 1.02}


def coloured(clients: int = 16, samples: int = 128) -> Dataset:
    """Coloured noise of CIFAR's shape: the time of a gradient step does not depend on what the picture shows."""
    g = Key.root(0).fold("bench").generator()
    n = clients * samples
    x = torch.randint(0, 256, (n, 3, 32, 32), dtype=torch.uint8, generator=g)
    y = torch.randint(0, 10, (n,), generator=g)
    classes = tuple(map(str, range(10)))
    return Dataset(
        "noise", "image", Split(x, y), Split(x[:10], y[:10]), classes, (0.5,) * 3, (0.25,) * 3
    )


class Bare:
    """The loop anybody would write, with nothing of the library in it but the model's layers and the order of the samples."""

    def __init__(self, prepared: PreparedRun) -> None:
        self.prepared, train = prepared, prepared.config.train
        self.lr, self.batch, self.epochs = train.lr, train.batch, train.epochs
        every = torch.arange(len(prepared.dataset.train))
        whole = prepared.clients[0].__class__(
            prepared.clients.split, every, prepared.clients.normalise
        )
        self.x, self.y = whole.batch(every, None)
        self.model: nn.Module = prepared.simulation.federation.build()

    def orders(self, round: int) -> list[tuple[Tensor, list[Tensor]]]:
        """Rows of every sampled client, and the order of its epochs, taken from the same keys as ours."""
        federation, found = self.prepared.simulation.federation, []
        for c in self.prepared.simulation.sampler(
            round, federation.key.fold("cohort", round), self.prepared.clients.sizes
        ):
            data = self.prepared.clients[c]
            key = federation.key.fold("round", round, "client", c, "phase", 0)
            epochs = [
                torch.randperm(len(data), generator=key.fold("epoch", e).generator())
                for e in range(self.epochs)
            ]
            found.append((data.rows, epochs))
        return found

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
    """Seconds a round of both, interleaved, and the median of the ratios of neighbours; the weights must agree."""
    prepared = prepare(load(settings), dataset)
    bare = Bare(prepared)
    state: ServerState = init_state(prepared.simulation, prepared.model)
    theirs, ours = (
        dict(state.params),
        rounds(prepared.simulation, state, MemoryStore(), settings["rounds"]),
    )
    seconds: list[tuple[float, float]] = []
    for number in range(count + 2):
        cohort = bare.orders(number)
        started = time.perf_counter()
        theirs = bare.round(theirs, cohort)
        middle = time.perf_counter()
        state, _ = next(ours)
        seconds.append((middle - started, time.perf_counter() - middle))
        if number == 1:  # later, rounding has grown
            worst = max(float((theirs[n] - t).abs().max()) for n, t in state.params.items())
    if worst > 1e-5:
        sys.exit(
            f"the two loops did not do the same steps: weights differ by {worst:.2e} after two rounds"
        )
    kept = seconds[2:]  # the first rounds warm the allocator
    return {
        "bare_seconds": statistics.median(b for b, _ in kept),
        "round_seconds": statistics.median(o for _, o in kept),
        "ratio": statistics.median(o for _, o in kept) / statistics.median(b for b, _ in kept),
        "pairs": len(kept),
        "largest_weight_difference": worst,
    }


def main() -> None:
    """Measure, print, and fail where a mark is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=40, help="pairs of rounds to time")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/overhead.json"))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    results = {
        "lenet5, batch 10": measure(LENET, None, asked.rounds),
        "resnet8, batch 32": measure(RESNET, coloured(), max(10, asked.rounds // 2)),
    }
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    asked.json.write_text(json.dumps(results, indent=2) + "\n")
    print(f"{'work':<20}{'bare, s':>10}{'round, s':>10}{'ratio':>8}{'mark':>8}")
    for name, r in results.items():
        print(
            f"{name:<20}{r['bare_seconds']:>10.4f}{r['round_seconds']:>10.4f}{r['ratio']:>8.3f}{MARKS[name]:>8.2f}"
        )
    if any(r["ratio"] > MARKS[name] for name, r in results.items()):
        sys.exit("a mark was missed")


if __name__ == "__main__":
    main()
