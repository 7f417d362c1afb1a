"""Per-FedAvg: a model from which every client gets far in one step of its own (MAML, federated).

    client   w' = w - alpha g(w; B1),   g' = g(w'; B2)
             fo   w <- w - beta g'
             hf   w <- w - beta (g' - alpha (g(w + delta g'; B3) - g(w - delta g'; B3)) / (2 delta))
    at last  w_k = w^T - alpha g(w^T; B),   adapt times

B1, B2, B3 are mini-batches of their own in each of the steps.
alpha >= 0   step of the adaptation; 0 is local SGD with beta, of two batches the second.   beta > 0   learning rate.
steps tau, alpha and beta belong to the method, plain SGD; the size of a mini-batch is the run's (40 in the paper).
State     none.   Uploads  model.   Needs  any model.
Fallah et al., NeurIPS 2020, algorithm 1, with its two approximations. Departures: clients are weighed by samples, where the paper
has equal weights (`perfedavg+fedavg(weights=clients)`); the last step is made on a client's training data, where the authors' code
makes it on test data. Batch norms move their statistics with each of a step's two to four gradients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedloom.core.method import Method, Phase
from fedloom.core.params import Params
from fedloom.core.solver import Gradient, Schedule, SGDRule, changed
from fedloom.core.spec import Param

PAPER = "Fallah et al., NeurIPS 2020"
LINK = "https://arxiv.org/abs/2002.07948"


@dataclass(frozen=True)
class Maml:
    """The gradient behind an alpha-step; with a delta, its Hessian factor by finite differences on a third batch."""

    alpha: float
    delta: float | None = None

    @property
    def batches(self) -> int:
        return 2 if self.delta is None else 3

    def begin(self, weights: list[Tensor], memory: list[Tensor] | None) -> None:
        return None

    def step(self, weights: list[Tensor], gradient: Gradient, lr: float, state: None) -> None:
        w = [t.detach().clone() for t in weights]

        def beside(direction: list[Tensor], length: float, batch: int) -> list[Tensor]:
            with torch.no_grad():
                torch._foreach_copy_(weights, torch._foreach_add(w, direction, alpha=length))
            return gradient(batch)

        g = beside(gradient(0), -self.alpha, 1)
        if self.delta is not None:
            bend = torch._foreach_sub(beside(g, self.delta, 2), beside(g, -self.delta, 2))
            g = list(torch._foreach_add(g, bend, alpha=-self.alpha / (2 * self.delta)))
        with torch.no_grad():
            torch._foreach_copy_(
                weights, torch._foreach_add(w, g, alpha=-lr)
            )  # from w, not from where the last gradient was taken

    def end(self, names: list[str], state: None) -> tuple[Mapping[str, Params], None]:
        return {}, None

    def effective_steps(self, steps: int) -> float:
        return steps


def perfedavg(
    alpha: Annotated[float, Param("step of the adaptation; 0 is local SGD", low=0)] = 0.01,
    beta: Annotated[float, Param("learning rate", above=0)] = 0.001,
    variant: Annotated[
        Literal["fo", "hf"], Param("first order, or with the Hessian by finite differences")
    ] = "fo",
    delta: Annotated[
        float, Param("how far apart the differences of hf are taken, in gradients", above=0)
    ] = 0.001,
    steps: Annotated[int, Param("steps a round", low=1)] = 10,
    adapt: Annotated[int, Param("alpha-steps to a client's own model", low=1)] = 1,
) -> Method:
    train = changed(
        lr=beta,
        schedule=Schedule(),
        steps=steps,
        rule=Maml(alpha, delta if variant == "hf" else None),
    )
    tune = changed(lr=alpha, schedule=Schedule(), steps=adapt, rule=SGDRule())
    return Method("perfedavg", (Phase(tunes=train),), finale=(Phase(tunes=tune),))
