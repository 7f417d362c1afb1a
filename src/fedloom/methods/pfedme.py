"""pFedMe: each client's model minimises its loss on a spring to w, and w follows the Moreau envelope that this makes.

    on each mini-batch:
        theta <- theta - pace (g(theta) + lam (theta - w) + decay theta),   inner times
        w     <- w - lr lam (w - theta)
    server   w^{t+1} = (1 - beta) w^t + beta sum_k p_k w_k

theta starts at w^t and goes on from mini-batch to mini-batch. It is the client's result, not w.
lam >= 0   stiffness; 0 leaves w where it is.   beta >= 0   server step; 1 is the mean itself.   lr lam must stay below 1.
inner K, lr eta and pace eta_p belong to the method, which has no momentum; mini-batches and their number R (the paper's are 20 of
20 samples) are the run's, by train.steps or train.epochs.
State     client: theta.   Uploads  model (w).   Needs  any model.
Dinh et al., NeurIPS 2020, algorithm 1. decay is mu of the authors' code, 0.001 there and 0 in the paper.
Departures: only the clients that are asked train, where in the paper all do and some are heard; a client that was never asked has
the global model. The authors' evaluation of the personal model is that of w; here it is that of theta, with the statistics of its
own batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from fedloom.core.errors import UserError
from fedloom.core.method import Method, Phase
from fedloom.core.params import Params
from fedloom.core.server import apply_mean, mean
from fedloom.core.solver import Gradient, Schedule, changed
from fedloom.core.spec import Param
from fedloom.stages.optimise import scale

PAPER = "Dinh et al., NeurIPS 2020"
LINK = "https://arxiv.org/abs/2006.08848"


@dataclass(frozen=True)
class Moreau:
    """One step of w: theta descends on one batch from where it was, then w moves towards it."""

    lam: float
    inner: int
    pace: float
    decay: float
    batches: int = 1

    def begin(self, weights: list[Tensor], memory: list[Tensor] | None) -> list[Tensor]:
        return [w.detach().clone() for w in weights]

    def step(
        self, weights: list[Tensor], gradient: Gradient, lr: float, theta: list[Tensor]
    ) -> list[Tensor]:
        w = [t.detach().clone() for t in weights]
        with torch.no_grad():
            torch._foreach_copy_(weights, theta)
        for _ in range(self.inner):
            g = gradient(0)
            with torch.no_grad():
                torch._foreach_add_(g, torch._foreach_sub(weights, w), alpha=self.lam)
                torch._foreach_add_(g, weights, alpha=self.decay)
                torch._foreach_add_(weights, g, alpha=-self.pace)
        theta = [t.detach().clone() for t in weights]
        with torch.no_grad():
            torch._foreach_copy_(
                weights, torch._foreach_add(w, torch._foreach_sub(w, theta), alpha=-lr * self.lam)
            )
        return theta

    def end(self, names: list[str], theta: list[Tensor]) -> tuple[Mapping[str, Params], None]:
        return {"theta": dict(zip(names, theta, strict=True))}, None

    def effective_steps(self, steps: int) -> float:
        return steps


def pfedme(
    lam: Annotated[
        float, Param("stiffness between theta and w; 0 leaves w where it is", low=0)
    ] = 15.0,
    inner: Annotated[int, Param("steps of theta on each mini-batch", low=1)] = 5,
    pace: Annotated[float, Param("learning rate of theta", above=0)] = 0.01,
    lr: Annotated[float, Param("learning rate of w", above=0)] = 0.005,
    beta: Annotated[float, Param("server step; 1 is the mean itself", low=0)] = 1.0,
    decay: Annotated[
        float, Param("pull of theta to 0, as the authors' code has it; 0 is the paper's", low=0)
    ] = 0.0,
) -> Method:
    if lr * lam >= 1:
        raise UserError(
            f"pfedme: lr={lr:g} times lam={lam:g} is {lr * lam:g}, and w would overshoot theta; keep it below 1"
        )
    tunes = changed(lr=lr, schedule=Schedule(), rule=Moreau(lam, inner, pace, decay))
    server = (mean(), *(() if beta == 1.0 else (scale(beta),)), apply_mean())
    return Method(
        "pfedme", (Phase(tunes=tunes, makes=("theta",)),), server=server, evaluates="theta"
    )
