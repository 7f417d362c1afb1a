"""FedAdam: the server applies Adam to the mean client update.

    m <- beta1 m + (1 - beta1) D,   v <- beta2 v + (1 - beta2) D^2,   D: the mean client update
    w^{t+1} = w^t + lr m / (sqrt(v) + tau)

lr             > 0, server learning rate.
beta1, beta2   in [0, 1], decay rates of the first and second moment.
tau            > 0, degree of adaptivity; a large tau approaches FedAvgM.
beta1 = 0, beta2 = 1, lr = 2 tau is FedAvg.

State: m and v at the server, for weights only; m starts at 0 and v at tau^2.
Uploads: the model. Needs: any model.
Reference: Reddi et al., ICLR 2021, algorithm 2. As there, no bias correction; libraries that start
at v = 0 and correct the bias implement a different method.
"""

from __future__ import annotations

from typing import Annotated

from torch import Tensor

from fedloom.core.method import Method
from fedloom.core.server import apply_mean, mean
from fedloom.core.spec import Param
from fedloom.stages.optimise import adaptive

PAPER = "Reddi et al., ICLR 2021"
LINK = "https://arxiv.org/abs/2003.00295"

ServerLr = Annotated[float, Param("server learning rate", above=0)]
Beta1 = Annotated[float, Param("decay rate of the first moment; 0: no momentum", low=0, high=1)]
Beta2 = Annotated[
    float, Param("decay rate of the second moment; 1 keeps its initial value", low=0, high=1)
]
Tau = Annotated[
    float, Param("degree of adaptivity; large values approach server momentum", above=0)
]


def fedadam(
    lr: ServerLr = 0.01, beta1: Beta1 = 0.9, beta2: Beta2 = 0.99, tau: Tau = 0.001
) -> Method:
    def second_moment(v: Tensor, square: Tensor) -> Tensor:
        return beta2 * v + (1 - beta2) * square

    name = f"adam({lr:g}, {beta1:g}, {beta2:g}, {tau:g})"
    stage = adaptive(name, second_moment, lr, beta1, tau)
    return Method("fedadam", server=(mean(), stage, apply_mean()))
