"""NoiseMix: NaiveMix with random noise instead of averaged data, an ablation of FedMix.

    (1 - lam) CE(f(x'), y) + lam CE(f(x'), y_g),   x' = (1 - lam) x + lam x_g
    x_g ~ N(0, deviation^2),   y_g = 1/C for each of the C classes

It shows what mixing achieves without any data of other clients. One x_g is drawn per batch.

lam         in [0, 1], share of the noise; 0 is FedAvg.
deviation   >= 0, standard deviation of the noise, in units of the network's input; with 0, samples
            are only scaled towards 0.

State: none. Uploads: the model. Needs: a model with numeric inputs, not text.
Reference: Yoon et al., ICLR 2021, appendix D ("Mixup w/ random noise"). The paper says only that
averages are replaced by random noise: the noise's distribution and labels, and that the loss is
NaiveMix's, are our interpretation.
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from fedloom.core.job import Job
from fedloom.core.key import Key
from fedloom.core.learning_task import CLASSIFICATION_ONLY
from fedloom.core.method import Method, Phase
from fedloom.core.spec import Param
from fedloom.core.transfer import to_device
from fedloom.losses.mixup import interpolated, with_one_hot_labels
from fedloom.methods.mixup import NUMERIC_INPUT

PAPER = "Yoon et al., ICLR 2021"
LINK = "https://arxiv.org/abs/2107.00233"


def noisemix(
    lam: Annotated[float, Param("share of the noise; 0 is FedAvg", low=0, high=1)] = 0.1,
    deviation: Annotated[
        float, Param("standard deviation of the noise, in units of the network's input", low=0)
    ] = 1.0,
) -> Method:
    def mix(x: Tensor, y: Tensor, job: Job, key: Key) -> tuple[Tensor, Tensor]:
        draws = torch.randn(x.shape[1:], generator=key.generator(), dtype=x.dtype)
        noise = deviation * to_device(draws, x.device)
        uniform = x.new_full((job.classes,), 1 / job.classes)
        return interpolated(with_one_hot_labels(x, y, job.classes), (noise, uniform), 1 - lam)

    return Method(
        "noisemix",
        (Phase(mix=mix if lam else None),),
        needs=(NUMERIC_INPUT,),
        tasks=CLASSIFICATION_ONLY,
    )
