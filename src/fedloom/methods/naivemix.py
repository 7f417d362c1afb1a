"""NaiveMix: each batch is blended with one average of another client's data, samples and labels alike.

    (1 - lam) CE(f(x'), y) + lam CE(f(x'), y_g),   x' = (1 - lam) x + lam x_g

(x_g, y_g) is drawn once a batch, uniformly from the averages that all clients sent before round 0 (exchange/averaged_data.py).
0 <= lam <= 1   share of the average; 0 is FedAvg. Mixup's own lam is the share of the client's data.
at              the block whose outputs are mixed instead, for text its embedding, in a phase that trains the blocks behind it,
                before plain epochs that train all (exchange/averaged_features.py). "" mixes the samples.
again           whether averages are of what the block gives, and sent anew every round. For an embedding, sent once is enough.
Further         parameters are those of the exchange.
State     server: the averages, unless they are sent anew.   Uploads  model, and averages of data before round 0 or every round.
Needs     a model of numbers; of text, `at`.
Yoon et al., ICLR 2021, eq. (1). Departures: none. Joins what neither blends batches nor, with `at`, replaces the loss. How samples
are normalised does not matter to NaiveMix, as it does to FedMix.
"""

from __future__ import annotations

from typing import Annotated

import torch.nn.functional as F
from torch import Tensor

from fedloom.core.job import Job
from fedloom.core.key import Key
from fedloom.core.method import Method, Phase
from fedloom.core.spec import Param
from fedloom.core.step import Step
from fedloom.exchange.averaged_data import AveragedData, exchanging
from fedloom.exchange.averaged_features import Again, At, behind
from fedloom.losses.mixup import beside, pair
from fedloom.methods.mixup import NUMBERS

PAPER = "Yoon et al., ICLR 2021"
LINK = "https://arxiv.org/abs/2107.00233"


@exchanging
def naivemix(
    lam: Annotated[float, Param("share of the average; 0 is FedAvg", low=0, high=1)] = 0.1,
    at: At = "",
    every_round: Again = False,
    *,
    averaged: AveragedData,
) -> Method:
    def mix(x: Tensor, y: Tensor, job: Job, key: Key) -> tuple[Tensor, Tensor]:
        return beside(pair(x, y, job.classes), averaged.draw(job, key), 1 - lam)

    def hidden(step: Step, h: Tensor, other: tuple[Tensor, Tensor]) -> Tensor:
        mixed, rows = beside(pair(h, step.y, step.job.classes), other, 1 - lam)
        return F.cross_entropy(step.model.run(mixed, after=at), rows)

    if not lam:
        return Method("naivemix")
    if at or every_round:
        return behind("naivemix", at, every_round, averaged, hidden)
    return Method("naivemix", (Phase(mix=mix),), prologue=(averaged.exchange,), needs=(NUMBERS,))
