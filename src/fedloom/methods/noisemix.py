"""NoiseMix: NaiveMix with noise in the place of averages, to see what mixing gives without anything of other clients in it.

    (1 - lam) CE(f(x'), y) + lam CE(f(x'), y_g),   x' = (1 - lam) x + lam x_g,   x_g ~ N(0, deviation^2),   y_g = 1/C each

Noise is drawn anew for every batch, one sample for all of it.
0 <= lam <= 1    share of the noise; 0 is FedAvg.
deviation >= 0   of the noise, in units of the network's input; 0 fades samples towards 0.
State     none.   Uploads  model.   Needs  a model of numbers, not of text.
Yoon et al., ICLR 2021, appendix D ("Mixup w/ random noise"). The paper says only that averages are replaced by random noise:
its distribution and labels, and that the loss is NaiveMix's, are our reading.
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from fedloom.core.job import Job
from fedloom.core.key import Key
from fedloom.core.method import Method, Phase
from fedloom.core.spec import Param
from fedloom.losses.mixup import beside, pair
from fedloom.methods.mixup import NUMBERS

PAPER = "Yoon et al., ICLR 2021"
LINK = "https://arxiv.org/abs/2107.00233"


def noisemix(
    lam: Annotated[float, Param("share of the noise; 0 is FedAvg", low=0, high=1)] = 0.1,
    deviation: Annotated[
        float, Param("deviation of the noise, in units of the network's input", low=0)
    ] = 1.0,
) -> Method:
    def mix(x: Tensor, y: Tensor, job: Job, key: Key) -> tuple[Tensor, Tensor]:
        noise = deviation * torch.randn(x.shape[1:], generator=key.generator(), dtype=x.dtype).to(
            x.device
        )
        return beside(
            pair(x, y, job.classes), (noise, x.new_full((job.classes,), 1 / job.classes)), 1 - lam
        )

    return Method("noisemix", (Phase(mix=mix if lam else None),), needs=(NUMBERS,))
