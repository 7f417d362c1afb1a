"""SCAFFOLD under momentum: what a client remembers is a mean of its gradients, as it is without."""

from typing import Any

import pytest
import torch
from torch import Tensor

from fedloom.core.solver import Gradient, Sgd, SGDRule
from fedloom.methods.scaffold import scaffold
from support.simulate import simulate

BALLS = [(0.0, False), (0.5, False), (0.9, False), (0.9, True)]
every_ball = pytest.mark.parametrize(("momentum", "nesterov"), BALLS)


@every_ball
@pytest.mark.parametrize("steps", [0, 1, 2, 17])
def test_the_reach_is_how_far_a_gradient_that_never_changes_carries(
    momentum: float, nesterov: bool, steps: int
) -> None:
    ball, weights, g = (
        SGDRule(momentum, nesterov),
        [torch.zeros(2, dtype=torch.float64)],
        torch.tensor([1.0, -3.0]).double(),
    )
    state = ball.begin(weights, None)
    for _ in range(steps):
        state = ball.step(weights, lambda n: [g.clone()], 0.1, state)
    torch.testing.assert_close(
        weights[0], -0.1 * ball.effective_steps(steps) * g, rtol=0, atol=1e-12
    )


class Recorded(SGDRule):
    """Keeps the gradients of every client that it moves."""

    seen: list[list[list[Tensor]]]

    def begin(self, weights: list[Tensor], memory: list[Tensor] | None) -> Any:
        self.seen.append([])
        return super().begin(weights, memory)

    def step(self, weights: list[Tensor], gradient: Gradient, lr: float, state: Any) -> Any:
        g = gradient(0)
        self.seen[-1].append([t.clone() for t in g])
        return super().step(weights, lambda n: g, lr, state)


def shares(count: int, momentum: float, nesterov: bool) -> list[float]:
    """How often each of so many gradients moves the weights, added up step by step."""
    total = [0.0] * count
    for now in range(count):
        for j in range(now + 1):
            total[j] += (
                momentum ** (now - j) if not nesterov else momentum ** (now - j + 1) + (j == now)
            )
    return total


@every_ball
def test_a_control_variate_is_a_mean_of_gradients(momentum: float, nesterov: bool) -> None:
    """In the first round, where c = c_i = 0; each gradient counts by how far it has moved the weights."""
    rule = type("Rule", (Recorded,), {"seen": []})(momentum, nesterov)
    result = simulate(scaffold(), 1, solver=Sgd(lr=0.1, batch=4, epochs=2, rule=rule))
    replies = result.answers[-1].values()  # in the order in which clients were played
    assert len(replies) == 3
    for reply, gradients in zip(replies, rule.seen, strict=True):
        parts = shares(len(gradients), momentum, nesterov)
        for number, found in enumerate(reply.memories["control"].values()):
            mean = sum(share * g[number] for share, g in zip(parts, gradients, strict=True)) / sum(
                parts
            )
            torch.testing.assert_close(found, mean, rtol=0, atol=1e-12)
