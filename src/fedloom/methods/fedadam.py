"""FedAdam: Adam at the server, on the mean change.

    m <- beta1 m + (1 - beta1) D,   v <- beta2 v + (1 - beta2) D^2,   w^{t+1} = w^t + lr m / (sqrt(v) + tau)

lr > 0   server step.   beta1, beta2 in [0, 1]   memories of the two moments.   tau > 0   adaptivity: large tau is FedAvgM.
beta1 = 0, beta2 = 1, lr = 2 tau is FedAvg.
State     server: m = 0 and v = tau^2 at first, over weights.   Uploads  model.   Needs  any model.
Reddi et al., ICLR 2021, algorithm 2. No bias correction, as there; libraries that start at v = 0 and correct are another method.
"""

from __future__ import annotations

from typing import Annotated

from fedloom.core.method import Method
from fedloom.core.server import apply_mean, mean
from fedloom.core.spec import Param
from fedloom.stages.optimise import adaptive

PAPER = "Reddi et al., ICLR 2021"
LINK = "https://arxiv.org/abs/2003.00295"

ServerLr = Annotated[float, Param("server step", above=0)]
Beta1 = Annotated[float, Param("memory of the mean change; 0 forgets", low=0, high=1)]
Beta2 = Annotated[float, Param("memory of the squared change; 1 keeps the start", low=0, high=1)]
Tau = Annotated[float, Param("adaptivity; large values approach plain momentum", above=0)]


def fedadam(
    lr: ServerLr = 0.01, beta1: Beta1 = 0.9, beta2: Beta2 = 0.99, tau: Tau = 0.001
) -> Method:
    stage = adaptive(
        f"adam({lr:g}, {beta1:g}, {beta2:g}, {tau:g})",
        lambda v, square: beta2 * v + (1 - beta2) * square,
        lr,
        beta1,
        tau,
    )
    return Method("fedadam", server=(mean(), stage, apply_mean()))
