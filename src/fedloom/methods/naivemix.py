"""NaiveMix: mixup of each batch with averaged data received from all clients.

    (1 - lam) CE(f(x'), y) + lam CE(f(x'), y_g),   x' = (1 - lam) x + lam x_g

(x_g, y_g) is drawn once per batch, uniformly from the averages that all clients send before round 0
(exchange/averaged_data_exchange.py).

lam           in [0, 1], share of the average; 0 is FedAvg. In mixup, lam is the share of the
              client's own sample.
at            the block whose outputs are mixed instead of the samples; for text its embedding. One
              phase trains the blocks after it on the mixed loss, then a second trains the whole
              model without mixing (exchange/averaged_features.py). "" mixes the samples.
every_round   whether clients average the outputs of `at` and send them before every round. For an
              embedding, sending once is enough.
The other parameters are those of the exchange.

State: the averages at the server, unless they are sent every round.
Uploads: the model, and averages of data before round 0 or every round.
Needs: a model with numeric inputs, or `at` for text.
Reference: Yoon et al., ICLR 2021, eq. (1). Departures: none. Combines with methods that do not mix
batches and, with `at`, do not replace the loss. Unlike FedMix, it does not depend on how samples
are normalised.
"""

from __future__ import annotations

from typing import Annotated

import torch.nn.functional as F
from torch import Tensor

from fedloom.core.job import Job
from fedloom.core.key import Key
from fedloom.core.learning_task import CLASSIFICATION_ONLY
from fedloom.core.method import Method, Phase
from fedloom.core.spec import Param
from fedloom.core.step import Step
from fedloom.exchange.averaged_data import AveragedData, exchanging
from fedloom.exchange.averaged_features import EveryRound, MixedBlock, feature_mixing_method
from fedloom.losses.mixup import interpolated, with_one_hot_labels
from fedloom.methods.mixup import NUMERIC_INPUT

PAPER = "Yoon et al., ICLR 2021"
LINK = "https://arxiv.org/abs/2107.00233"


@exchanging
def naivemix(
    lam: Annotated[float, Param("share of the average; 0 is FedAvg", low=0, high=1)] = 0.1,
    at: MixedBlock = "",
    every_round: EveryRound = False,
    *,
    averaged: AveragedData,
) -> Method:
    def mix(x: Tensor, y: Tensor, job: Job, key: Key) -> tuple[Tensor, Tensor]:
        own = with_one_hot_labels(x, y, job.classes)
        return interpolated(own, averaged.draw(job, key), 1 - lam)

    def feature_loss(step: Step, h: Tensor, other: tuple[Tensor, Tensor]) -> Tensor:
        own = with_one_hot_labels(h, step.y, step.job.classes)
        mixed, labels = interpolated(own, other, 1 - lam)
        return F.cross_entropy(step.model.run(mixed, after=at), labels)

    if not lam:
        return Method("naivemix", tasks=CLASSIFICATION_ONLY)
    if at or every_round:
        return feature_mixing_method("naivemix", at, every_round, averaged, feature_loss)
    phase = Phase(mix=mix)
    return Method(
        "naivemix",
        (phase,),
        prologue=(averaged.exchange,),
        needs=(NUMERIC_INPUT,),
        tasks=CLASSIFICATION_ONLY,
    )
