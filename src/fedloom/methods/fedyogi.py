"""FedYogi: FedAdam with Yogi's additive update of the second moment.

    v <- v - (1 - beta2) D^2 sign(v - D^2),   the rest as in FedAdam

v changes by (1 - beta2) D^2 per round, whatever its size, so it forgets large updates slowly.
Parameters, state, uploads and needs are FedAdam's; beta1 = 0, beta2 = 1, lr = 2 tau is FedAvg.
Reference: Reddi et al., ICLR 2021, algorithm 2.
"""

from __future__ import annotations

from torch import Tensor

from fedloom.core.method import Method
from fedloom.core.server import apply_mean, mean
from fedloom.methods.fedadam import Beta1, Beta2, ServerLr, Tau
from fedloom.stages.optimise import adaptive

PAPER = "Reddi et al., ICLR 2021"
LINK = "https://arxiv.org/abs/2003.00295"


def fedyogi(
    lr: ServerLr = 0.01, beta1: Beta1 = 0.9, beta2: Beta2 = 0.99, tau: Tau = 0.001
) -> Method:
    def second_moment(v: Tensor, square: Tensor) -> Tensor:
        return v - (1 - beta2) * square * (v - square).sign()

    name = f"yogi({lr:g}, {beta1:g}, {beta2:g}, {tau:g})"
    stage = adaptive(name, second_moment, lr, beta1, tau)
    return Method("fedyogi", server=(mean(), stage, apply_mean()))
