"""Server optimisers: they turn the clients' mean update D into the server's step.

They apply to weights only, never to running statistics or counters.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fedloom.core.params import Params, zeros
from fedloom.core.server import Cohort, Memory, Stage, no_memory


def scale(lr: float) -> Stage:
    """The mean update times a server learning rate; 1 changes nothing."""

    def step(memory: Memory, c: Cohort) -> tuple[Memory, Cohort]:
        return memory, c.with_mean("model", {n: lr * d for n, d in c.step.items()})

    return Stage("optimise", f"scale(lr={lr:g})", no_memory, step)


def momentum(beta: float, lr: float = 1.0) -> Stage:
    """Server momentum: m <- beta m + D, and the step is lr m. m starts at 0."""

    def init(weights: Params) -> Memory:
        return {"velocity": zeros(weights)}

    def step(memory: Memory, c: Cohort) -> tuple[Memory, Cohort]:
        m = {n: beta * memory["velocity"][n] + d for n, d in c.step.items()}
        return {"velocity": m}, c.with_mean("model", {n: lr * t for n, t in m.items()})

    return Stage("optimise", f"momentum(beta={beta:g}, lr={lr:g})", init, step)


SecondMoment = Callable[[Tensor, Tensor], Tensor]  # (v, D^2) -> the new v


def adaptive(name: str, second_moment: SecondMoment, lr: float, beta1: float, tau: float) -> Stage:
    """Adaptive server optimiser of Reddi et al.; `second_moment` is its rule for v.

    m <- beta1 m + (1 - beta1) D, and the step is lr m / (sqrt(v) + tau). m starts at 0 and v at
    tau^2; there is no bias correction.
    """

    def init(weights: Params) -> Memory:
        return {
            "first": zeros(weights),
            "second": {n: torch.full_like(t, tau**2) for n, t in weights.items()},
        }

    def step(memory: Memory, c: Cohort) -> tuple[Memory, Cohort]:
        m = {n: beta1 * memory["first"][n] + (1 - beta1) * d for n, d in c.step.items()}
        v = {n: second_moment(memory["second"][n], d.square()) for n, d in c.step.items()}
        change = {n: lr * m[n] / (v[n].sqrt() + tau) for n in m}
        return {"first": m, "second": v}, c.with_mean("model", change)

    return Stage("optimise", name, init, step)
