"""SCAFFOLD with momentum: a client's control variate is a mean of its gradients, as without."""

from typing import Any

import pytest
import torch
from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.optimisers import SGDRule
from fedloom.core.params import Params
from fedloom.core.rule import Gradient
from fedloom.core.solver import Sgd
from fedloom.methods.scaffold import scaffold
from support.models import bare
from support.simulate import simulate

MOMENTA = [(0.0, False), (0.5, False), (0.9, False), (0.9, True)]
every_momentum = pytest.mark.parametrize(("momentum", "nesterov"), MOMENTA)


@every_momentum
@pytest.mark.parametrize("steps", [0, 1, 2, 17])
def test_effective_steps_are_the_distance_moved_by_a_constant_gradient(
    momentum: float, nesterov: bool, steps: int
) -> None:
    rule, weights, g = (
        SGDRule(momentum, nesterov),
        [torch.zeros(2, dtype=torch.float64)],
        torch.tensor([1.0, -3.0]).double(),
    )
    state = rule.begin(bare(), {"w": weights[0]}, None)
    for _ in range(steps):
        state = rule.step(weights, lambda n: [g.clone()], 0.1, state)
    torch.testing.assert_close(
        weights[0], -0.1 * rule.effective_steps(steps) * g, rtol=0, atol=1e-12
    )


class Recorded(SGDRule):
    """Records the gradients of every client."""

    seen: list[list[list[Tensor]]]

    def begin(self, model: Chain, weights: Params, memory: Params | None) -> Any:
        self.seen.append([])
        return super().begin(model, weights, memory)

    def step(self, weights: list[Tensor], gradient: Gradient, lr: float, state: Any) -> Any:
        g = gradient(0)
        self.seen[-1].append([t.clone() for t in g])
        return super().step(weights, lambda n: g, lr, state)


def shares(count: int, momentum: float, nesterov: bool) -> list[float]:
    """The weight with which each of `count` gradients moves the weights, summed step by step."""
    total = [0.0] * count
    for now in range(count):
        for j in range(now + 1):
            total[j] += (
                momentum ** (now - j) if not nesterov else momentum ** (now - j + 1) + (j == now)
            )
    return total


@every_momentum
def test_a_control_variate_is_a_mean_of_gradients(momentum: float, nesterov: bool) -> None:
    """In the first round, where c = c_i = 0; gradients are weighted by how far they move w."""
    rule = type("Rule", (Recorded,), {"seen": []})(momentum, nesterov)
    result = simulate(scaffold(), 1, solver=Sgd(lr=0.1, batch=4, epochs=2, rule=rule))
    replies = result.answers[-1].values()  # in the order in which clients ran
    assert len(replies) == 3
    for reply, gradients in zip(replies, rule.seen, strict=True):
        parts = shares(len(gradients), momentum, nesterov)
        for number, found in enumerate(reply.memories["control"].values()):
            mean = sum(share * g[number] for share, g in zip(parts, gradients, strict=True)) / sum(
                parts
            )
            torch.testing.assert_close(found, mean, rtol=0, atol=1e-12)
