"""The vectorised engine: the clients of a round side by side, one call for all. Within 1e-5 of the exact engine in float32.

It pays for small models, where a client costs more than its sums. It plays methods of one phase on plain descent that are proved
at the start to give the numbers of clients alone. All else is left to another engine, and `why_not` says why.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

from fedloom.core.chain import Chain
from fedloom.core.client import Broadcast, Federation, Task
from fedloom.core.job import build_isolated
from fedloom.core.params import nbytes
from fedloom.core.round import Engine
from fedloom.core.select import has_batch_statistics
from fedloom.core.solver import Sgd, SGDRule, Solver
from fedloom.engines.inprocess import InProcess
from fedloom.engines.vmap_check import difference_from_exact
from fedloom.engines.vmap_round import Lanes
from fedloom.engines.workload import Workload

MEMORY = 512 * 2**20  # bytes that the lanes of one call may take, about
CHANNELS, ROWS = (
    16,
    10,
)  # beyond these, stacked convolutions take 1.2 to 2.7 times as long as single ones


class Vectorised:
    """lanes: how many clients at once, at most. A call that fails is played again by the fallback, which says whose fault it is."""

    def __init__(self, federation: Federation, fallback: Engine, lanes: int = 128) -> None:
        self.fallback = fallback
        model = build_isolated(federation.build)
        self.why_not = unfit(federation, model) or difference_from_exact(federation)
        self.lanes = None if self.why_not else Lanes(federation)
        self.width = (
            0 if self.lanes is None else max(1, min(lanes, MEMORY // footprint(self.lanes, model)))
        )

    def map(self, sent: Broadcast, tasks: Iterable[Task]) -> Iterator[tuple[int, Any]]:
        if self.lanes is None or sent.work != "train":
            yield from self.fallback.map(sent, tasks)
            return
        waiting = iter(tasks)
        while chunk := list(itertools.islice(waiting, self.width)):
            try:
                replies = self.lanes.play(sent, chunk)
            except Exception:
                yield from self.fallback.map(sent, chunk)
            else:
                yield from ((reply.client, reply) for reply in replies)

    def close(self) -> None:
        """Close the fallback; nothing else is held."""
        self.fallback.close()


def open(workload: Workload) -> tuple[Federation, Vectorised]:
    """The vectorised engine, with the in-process engine for what cannot be batched.

    Stacked weights have to be contiguous, whatever the layout of the settings.
    """
    stacked = workload.rebuild("contiguous")
    return workload.federation, Vectorised(stacked, InProcess(workload.federation))


def unfit(federation: Federation, model: Chain) -> str | None:
    """Why lanes cannot play this method, model or solver, as far as that can be seen from outside."""
    method = federation.method
    phase, about = method.phases[0], f"method '{method.name}'"
    solver = phase.solver_for(federation.solver)
    rule = solver.rule if isinstance(solver, Sgd) else None
    elsewhere = phase.start not in (None, "received", "model")
    draws = any(isinstance(layer, nn.modules.dropout._DropoutNd) for layer in model.modules())
    reasons = {
        f"{about} has {len(method.phases)} phases, and lanes go through one": len(method.phases)
        > 1,
        f"{about} mixes batches, and lanes train on samples as they are": phase.mix is not None,
        f"{about} keeps tensors private, and lanes start from the same weights": bool(
            method.private(model)
        ),
        f"{about} starts from slot '{phase.start}', and lanes from the same weights": elsewhere,
        "the clients do not descend by Sgd with SGDRule, the only rule of lanes": not isinstance(
            rule, SGDRule
        ),
        "train.reset=false keeps each client's momentum, and lanes start without": isinstance(
            solver, Sgd
        )
        and not solver.reset,
        "the model normalises by the batch, and lanes pad batches": has_batch_statistics(model),
        "compile=true is not for lanes, which trace the model themselves": any(
            "forward" in vars(m) for m in model.modules()
        ),
        "the model has dropout, and lanes draw nothing in a forward pass": draws,
        f"on a CPU lanes pay for convolutions of {CHANNELS} channels at most, in batches of {ROWS} at most": _slow(
            model, solver
        ),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _slow(model: Chain, solver: Solver) -> bool:
    """Whether the model has convolutions that are faster one client after the other, by benchmarks."""
    layers = [
        m
        for m in model.modules()
        if isinstance(m, nn.modules.conv._ConvNd) and m.weight.device.type == "cpu"
    ]
    large = isinstance(solver, Sgd) and solver.batch > ROWS
    return any(large or layer.out_channels > CHANNELS for layer in layers)


def footprint(lanes: Lanes, model: Chain) -> int:
    """Bytes a lane takes: weights, gradient, momentum and change, and what the samples of a batch leave for the backward pass."""
    longest = max(lanes.federation.clients, key=len)
    one, two = (
        _saved(model, longest.batch(torch.zeros(count, dtype=torch.int64))[0]) for count in (1, 2)
    )
    return 4 * nbytes(model.state_dict()) + min(lanes.solver.batch, len(longest)) * max(
        0, two - one
    )


def _saved(model: Chain, x: torch.Tensor) -> int:
    """Bytes that a forward pass keeps; weights are among them, whatever the batch."""
    sizes: list[int] = []

    def keep(t: torch.Tensor) -> torch.Tensor:
        sizes.append(t.nbytes)
        return t

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        model(x)
    return sum(sizes)
