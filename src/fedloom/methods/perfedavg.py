"""Per-FedAvg: learns an initial model that each client can adapt with few steps (federated MAML).

    client   w' = w - alpha g(w; B1),   g' = g(w'; B2)
             fo   w <- w - beta g'
             hf   w <- w - beta (g' - alpha (g(w + delta g'; B3) - g(w - delta g'; B3)) / (2 delta))
    finale   w_k = w^T - alpha g(w^T; B),   `adapt` times

B1, B2 and B3 are independent mini-batches, drawn for every step.

alpha   >= 0, learning rate of the adaptation; 0 is local SGD with beta on every second batch.
beta    > 0, learning rate of the client.
steps (tau in the paper), alpha and beta are the method's own, with plain SGD: settings of the run's
optimiser and schedule are rejected, and train.lr is not used. The mini-batch size is the run's (40
in the paper).

State: none. Uploads: the model. Needs: any model.
Reference: Fallah et al., NeurIPS 2020, algorithm 1, with its two approximations. Departures:
clients are weighted by samples; the paper weights them equally
(`perfedavg+fedavg(weights=clients)`). The final adaptation uses a client's training data, where the
authors' code uses its test data. Batch norms update their statistics at each of the two to four
gradients of a step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.method import Method, Phase
from fedloom.core.optimisers import SGDRule
from fedloom.core.params import Params
from fedloom.core.rule import Gradient
from fedloom.core.solver import Schedule, changed
from fedloom.core.spec import Param

PAPER = "Fallah et al., NeurIPS 2020"
LINK = "https://arxiv.org/abs/2002.07948"


@dataclass(frozen=True)
class Maml:
    """A step along the gradient after an adaptation step of length alpha (first-order MAML).

    With a delta, the Hessian-vector product is added, by finite differences on a third batch.
    """

    alpha: float
    delta: float | None = None

    @property
    def batches(self) -> int:
        return 2 if self.delta is None else 3

    def begin(self, model: Chain, weights: Params, memory: Params | None) -> None:
        return None

    def step(self, weights: list[Tensor], gradient: Gradient, lr: float, state: None) -> None:
        w = [t.detach().clone() for t in weights]

        def gradient_at(direction: list[Tensor], length: float, batch: int) -> list[Tensor]:
            """The gradient at w + length * direction."""
            with torch.no_grad():
                torch._foreach_copy_(weights, torch._foreach_add(w, direction, alpha=length))
            return gradient(batch)

        g = gradient_at(gradient(0), -self.alpha, 1)
        if self.delta is not None:
            ahead, back = gradient_at(g, self.delta, 2), gradient_at(g, -self.delta, 2)
            difference = torch._foreach_sub(ahead, back)
            g = list(torch._foreach_add(g, difference, alpha=-self.alpha / (2 * self.delta)))
        with torch.no_grad():
            # From w, not from where the last gradient was taken.
            torch._foreach_copy_(weights, torch._foreach_add(w, g, alpha=-lr))

    def end(self, names: list[str], state: None) -> tuple[Mapping[str, Params], None]:
        return {}, None

    def effective_steps(self, steps: int) -> float:
        return steps


def perfedavg(
    alpha: Annotated[
        float, Param("learning rate of the adaptation; 0 is local SGD with beta", low=0)
    ] = 0.01,
    beta: Annotated[float, Param("learning rate of the client", above=0)] = 0.001,
    variant: Annotated[
        Literal["fo", "hf"],
        Param("first-order, or Hessian-free (with the Hessian by finite differences)"),
    ] = "fo",
    delta: Annotated[
        float, Param("step of hf's finite differences, as a multiple of the gradient", above=0)
    ] = 0.001,
    steps: Annotated[int, Param("local steps per round", low=1)] = 10,
    adapt: Annotated[int, Param("final adaptation steps to a client's own model", low=1)] = 1,
) -> Method:
    rule = Maml(alpha, delta if variant == "hf" else None)
    train = changed(lr=beta, schedule=Schedule(), steps=steps, rule=rule)
    adaptation = changed(lr=alpha, schedule=Schedule(), steps=adapt, rule=SGDRule())
    return Method("perfedavg", (Phase(tunes=train),), finale=(Phase(tunes=adaptation),))
