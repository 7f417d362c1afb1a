"""Server optimisers: what becomes of the mean change before it is applied. They see weights only, never statistics or counters."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fedloom.core.params import Params, zeros
from fedloom.core.server import Cohort, Memory, Stage, no_memory


def scale(lr: float) -> Stage:
    """The mean change times a server learning rate; 1 changes nothing."""

    def step(memory: Memory, c: Cohort) -> tuple[Memory, Cohort]:
        return memory, c.with_mean("model", {n: lr * d for n, d in c.step.items()})

    return Stage("optimise", f"scale(lr={lr:g})", no_memory, step)


def momentum(beta: float, lr: float = 1.0) -> Stage:
    """m <- beta m + D; the step is lr m."""

    def step(memory: Memory, c: Cohort) -> tuple[Memory, Cohort]:
        m = {n: beta * memory["velocity"][n] + d for n, d in c.step.items()}
        return {"velocity": m}, c.with_mean("model", {n: lr * t for n, t in m.items()})

    return Stage(
        "optimise",
        f"momentum(beta={beta:g}, lr={lr:g})",
        lambda weights: {"velocity": zeros(weights)},
        step,
    )


Second = Callable[[Tensor, Tensor], Tensor]  # (v, D^2) -> v


def adaptive(name: str, second: Second, lr: float, beta1: float, tau: float) -> Stage:
    """m <- beta1 m + (1 - beta1) D; v by the rule; the step is lr m / (sqrt(v) + tau). m_0 = 0, v_0 = tau^2, no bias correction."""

    def init(weights: Params) -> Memory:
        return {
            "first": zeros(weights),
            "second": {n: torch.full_like(t, tau**2) for n, t in weights.items()},
        }

    def step(memory: Memory, c: Cohort) -> tuple[Memory, Cohort]:
        m = {n: beta1 * memory["first"][n] + (1 - beta1) * d for n, d in c.step.items()}
        v = {n: second(memory["second"][n], d.square()) for n, d in c.step.items()}
        return {"first": m, "second": v}, c.with_mean(
            "model", {n: lr * m[n] / (v[n].sqrt() + tau) for n in m}
        )

    return Stage("optimise", name, init, step)
