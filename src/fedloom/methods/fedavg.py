"""FedAvg: clients run local SGD from the global model, and the server averages their updates.

    w^{t+1} = w^t + server_lr * sum_k p_k (w_k - w^t)

weights     p_k: n_k / n over the sampled clients ("samples"), 1/|S| ("clients"), or proportional to
            the samples an epoch actually visits under drop_last ("seen", as FedAlign's authors do).
server_lr   >= 0, learning rate of the server; 1 is plain averaging.

State: none. Uploads: the model. Needs: any model.
Reference: McMahan et al., AISTATS 2017, algorithm 1. The paper weights clients by samples.
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
    weights: Annotated[
        By,
        Param("client weights: by samples, equal per client, or by samples seen (drop_last)"),
    ] = "samples",
    server_lr: Annotated[float, Param("server learning rate; 1 is plain averaging", low=0)] = 1.0,
) -> Method:
    step = () if server_lr == 1.0 else (scale(server_lr),)
    return Method("fedavg", server=(mean(by=weights), *step, apply_mean()))
