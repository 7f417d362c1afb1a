"""FedAvg: local SGD from the received model, then the mean of the changes.

    w^{t+1} = w^t + server_lr * sum_k p_k (w_k - w^t)

p_k       weights: n_k / n over the sampled clients ("samples"), 1/|S| ("clients"), or the samples an epoch really visits under
          drop_last ("seen", as FedAlign's authors weigh).
server_lr >= 0; 1 is the mean itself.
State     none.   Uploads  model.   Needs  any model.
McMahan et al., AISTATS 2017, algorithm 1. The paper weighs by samples.
"""

from __future__ import annotations

from typing import Annotated

from fedloom.core.method import Method
from fedloom.core.server import By, apply_mean, mean
from fedloom.core.spec import Param
from fedloom.stages.optimise import scale

PAPER = "McMahan et al., AISTATS 2017"
LINK = "https://arxiv.org/abs/1602.05629"


def fedavg(
    weights: Annotated[By, Param("what a client's weight in the mean is")] = "samples",
    server_lr: Annotated[float, Param("server step; 1 is the mean itself", low=0)] = 1.0,
) -> Method:
    step = () if server_lr == 1.0 else (scale(server_lr),)
    return Method("fedavg", server=(mean(by=weights), *step, apply_mean()))
