"""FedAvgM: FedAvg with momentum at the server.

    m <- beta m + D,   w^{t+1} = w^t + lr m,   D: the mean client update, m starts at 0

beta   in [0, 1), server momentum; 0 is FedAvg.
lr     >= 0, server learning rate.

State: m at the server, for weights only. Uploads: the model. Needs: any model.
Reference: Hsu et al., 2019. No dampening and no Nesterov momentum, as in FedMLB's comparison (beta
from 0.4, 0.6, 0.8).
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
    beta: Annotated[float, Param("server momentum; 0 is FedAvg", low=0, below=1)] = 0.4,
    lr: Annotated[float, Param("server learning rate", low=0)] = 1.0,
) -> Method:
    return Method("fedavgm", server=(mean(), momentum(beta, lr), apply_mean()))
