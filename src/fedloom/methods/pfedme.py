"""pFedMe: trains personal models with a proximal term to the global one (Moreau envelopes).

    on each mini-batch:
        theta <- theta - pace (g(theta) + lam (theta - w) + decay theta),   `inner` times
        w     <- w - lr lam (w - theta)
    server   w^{t+1} = (1 - beta) w^t + beta sum_k p_k w_k

theta starts at w^t and continues from mini-batch to mini-batch. The personal model is theta, not w.

lam     >= 0, weight of the proximal term; 0 leaves w unchanged. lr lam must be below 1.
beta    >= 0, server learning rate; 1 is plain averaging.
inner   K in the paper, gradient steps of theta per mini-batch.
lr (eta) and pace (eta_p) are the method's own, constant and without momentum: settings of the run's
optimiser and schedule are rejected, and train.lr is not used. The mini-batches and their number R
(20 of 20 samples in the paper) are the run's, by train.steps or train.epochs.
While theta follows closely, a mini-batch moves w like SGD with the learning rate lr: the paper's
0.005 is slow for a model that FedAvg trains with 0.5. A larger lr needs a smaller lam.

State: theta at each client. Uploads: the model (w). Needs: any model.
Reference: Dinh et al., NeurIPS 2020, algorithm 1. decay is mu of the authors' code, 0.001 there and
0 in the paper. Departures: only sampled clients train; in the paper all clients train and a sample
is aggregated. A client that was never sampled is evaluated with the global model. The authors' code
evaluates w as the personal model; here it is theta, with the statistics of its own batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.errors import UserError
from fedloom.core.method import Method, Phase
from fedloom.core.params import Params
from fedloom.core.rule import Gradient
from fedloom.core.server import apply_mean, mean
from fedloom.core.solver import Schedule, changed
from fedloom.core.spec import Param
from fedloom.stages.optimise import scale

PAPER = "Dinh et al., NeurIPS 2020"
LINK = "https://arxiv.org/abs/2006.08848"


@dataclass(frozen=True)
class Moreau:
    """One step of w: gradient steps of theta on one batch, then a step of w towards theta."""

    lam: float
    inner: int
    pace: float
    decay: float
    batches: int = 1

    def begin(self, model: Chain, weights: Params, memory: Params | None) -> list[Tensor]:
        return [w.detach().clone() for w in weights.values()]

    def step(
        self, weights: list[Tensor], gradient: Gradient, lr: float, theta: list[Tensor]
    ) -> list[Tensor]:
        w = [t.detach().clone() for t in weights]
        with torch.no_grad():
            torch._foreach_copy_(weights, theta)
        for _ in range(self.inner):
            g = gradient(0)
            with torch.no_grad():
                # not in place: two weights of which only the sum is used share one gradient
                g = list(torch._foreach_add(g, torch._foreach_sub(weights, w), alpha=self.lam))
                torch._foreach_add_(g, weights, alpha=self.decay)
                torch._foreach_add_(weights, g, alpha=-self.pace)
        theta = [t.detach().clone() for t in weights]
        with torch.no_grad():
            difference = torch._foreach_sub(w, theta)
            moved = torch._foreach_add(w, difference, alpha=-lr * self.lam)
            torch._foreach_copy_(weights, moved)
        return theta

    def end(self, names: list[str], theta: list[Tensor]) -> tuple[Mapping[str, Params], None]:
        return {"theta": dict(zip(names, theta, strict=True))}, None

    def effective_steps(self, steps: int) -> float:
        return steps


def pfedme(
    lam: Annotated[
        float, Param("weight of the proximal term between theta and w; 0 leaves w as it is", low=0)
    ] = 15.0,
    inner: Annotated[int, Param("gradient steps of theta per mini-batch", low=1)] = 5,
    pace: Annotated[float, Param("learning rate of theta", above=0)] = 0.01,
    lr: Annotated[float, Param("learning rate of w", above=0)] = 0.005,
    beta: Annotated[float, Param("server learning rate; 1 is plain averaging", low=0)] = 1.0,
    decay: Annotated[
        float, Param("weight decay of theta, as in the authors' code; 0 in the paper", low=0)
    ] = 0.0,
) -> Method:
    if lr * lam >= 1:
        raise UserError(
            f"pfedme: lr={lr:g} times lam={lam:g} is {lr * lam:g}, so w would overshoot theta; "
            "keep the product below 1"
        )
    tunes = changed(lr=lr, schedule=Schedule(), rule=Moreau(lam, inner, pace, decay))
    step = () if beta == 1.0 else (scale(beta),)
    phase = Phase(tunes=tunes, makes=("theta",))
    return Method("pfedme", (phase,), server=(mean(), *step, apply_mean()), evaluates="theta")
