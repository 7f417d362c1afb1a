"""How far vectorised clients may be from clients run alone: rounding, and what it grows into.

In float64 the difference stays at rounding over 50 steps with momentum, kinks or not. In float32 it
does so on a smooth net. A ReLU or a maximum whose inputs agree up to rounding may take the other
branch; from that step on the difference grows like that of any two float32 computations.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedloom.core.chain import Chain
from fedloom.core.federation import Federation
from fedloom.core.key import Key
from fedloom.core.optimisers import SGDRule
from fedloom.core.request import Broadcast, ClientTask
from fedloom.core.server import Reply
from fedloom.core.solver import Sgd
from fedloom.engines.inprocess import InProcess
from fedloom.engines.vmap_round import VmapRound
from fedloom.methods.fedavg import fedavg
from support.clients import TensorClient
from support.vectorised import max_difference

SIZES = (60, 60, 37, 12)  # batches of 10: unequal numbers of steps and padded last batches
LAYERS = {"kinks": (nn.ReLU, nn.MaxPool2d), "smooth": (nn.Tanh, nn.AvgPool2d)}


def federation(layers: str, dtype: torch.dtype, steps: int) -> Federation:
    activation, pool = LAYERS[layers]

    def build() -> Chain:
        torch.manual_seed(0)
        stem = nn.Sequential(nn.Conv2d(1, 4, 3), activation(), pool(2))
        body = nn.Sequential(nn.Conv2d(4, 8, 3), activation(), pool(2), nn.Flatten())
        return Chain({"stem": stem, "body": body, "head": nn.Linear(32, 5)}).to(dtype)

    draws = torch.Generator().manual_seed(1)
    clients = [
        TensorClient(
            torch.randn(size, 1, 14, 14, generator=draws).to(dtype),
            torch.randint(5, (size,), generator=draws),
        )
        for size in SIZES
    ]
    solver = Sgd(lr=0.1, batch=10, steps=steps, rule=SGDRule(momentum=0.9))
    return Federation(fedavg(), build, clients, solver, Key.root(0), classes=5)


def difference(layers: str, dtype: torch.dtype, steps: int) -> float:
    """The largest difference of a weight between clients run alone and vectorised."""
    both = federation(layers, dtype, steps)
    sent = Broadcast("train", 0, both.build().state_dict())
    tasks = [ClientTask(client) for client in range(len(SIZES))]
    alone: dict[int, Reply] = dict(InProcess(both).map(sent, tasks))
    return max(
        max_difference(alone[reply.client].uploads["model"], reply.uploads["model"])
        for reply in VmapRound(both).run(sent, tasks)
    )


@pytest.mark.parametrize("layers", LAYERS)
def test_fifty_steps_differ_by_rounding_in_float64(layers: str) -> None:
    assert difference(layers, torch.float64, 50) < 1e-12


@pytest.mark.parametrize("layers", LAYERS)
def test_a_step_differs_by_rounding_in_float32(layers: str) -> None:
    assert difference(layers, torch.float32, 1) < 1e-6


def test_fifty_steps_of_a_smooth_net_are_within_1e_5_in_float32() -> None:
    assert difference("smooth", torch.float32, 50) < 1e-5
