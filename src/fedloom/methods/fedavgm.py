"""FedAvgM: the server gives the mean change momentum.

    m <- beta m + D,   w^{t+1} = w^t + lr m,   D = mean of the clients' changes, m = 0 at first

beta in [0, 1)   momentum; 0 is FedAvg.   lr >= 0   server step.
State     server: m over weights.   Uploads  model.   Needs  any model.
Hsu et al., 2019. No dampening and no Nesterov, as in FedMLB's comparison (beta from .4, .6, .8).
"""

from __future__ import annotations

from typing import Annotated

from fedloom.core.method import Method
from fedloom.core.server import apply_mean, mean
from fedloom.core.spec import Param
from fedloom.stages.optimise import momentum

PAPER = "Hsu et al., 2019"
LINK = "https://arxiv.org/abs/1909.06335"


def fedavgm(
    beta: Annotated[float, Param("momentum of the server; 0 is FedAvg", low=0, below=1)] = 0.4,
    lr: Annotated[float, Param("server step; 1 is the momentum itself", low=0)] = 1.0,
) -> Method:
    return Method("fedavgm", server=(mean(), momentum(beta, lr), apply_mean()))
