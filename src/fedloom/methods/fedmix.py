"""FedMix: mixup with the data of all clients, to first order, for which averages of their data are enough.

    (1 - lam) CE(z, y) + lam CE(z, y_g) + c J,   z = f(u),   u = (1 - lam) x,   J = 1/B sum_i d CE(f(u_i), y_i) / du_i . x_g

(x_g, y_g) is drawn once a batch, uniformly from the averages that all clients sent before round 0 (exchange/averaged_data.py). Weights learn
through J too: it is part of the loss, with its second derivatives (losses/directional_derivative.py).
0 <= lam <= 1   share of the average; 0 is FedAvg.
coefficient     c: "alg2" is lam (1 - lam), as in the paper's algorithm 2; "eq5" is lam, as in its eq. (5), the same up to lam^2.
at              the block whose outputs are mixed instead, for text its embedding, in a phase that trains the blocks behind it,
                before plain epochs that train all (exchange/averaged_features.py). "" mixes the samples.
again           whether averages are of what the block gives, and sent anew every round. For an embedding, sent once is enough.
Further         parameters are those of the exchange.
State     server: the averages, unless they are sent anew.   Uploads  model, and averages of data before round 0 or every round.
Needs     a model of numbers; of text, `at`.
Yoon et al., ICLR 2021. Departures: none from the paper; its own code is not public, and re-implementations divide J by the batch
twice. The loss is expanded around (1 - lam) x, so it matters where 0 is: how samples are normalised is part of the method.
J has no lower bound, nor has the loss: where it falls below 0, accuracy falls with it (docs/results/fedmix.md, handwriting).
Joins what neither blends batches nor replaces the loss. Terms of others see the batch as it is here, scaled by 1 - lam.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch.nn.functional as F
from torch import Tensor

from fedloom.core.job import Job
from fedloom.core.key import Key
from fedloom.core.method import Method, Phase
from fedloom.core.spec import Param
from fedloom.core.step import Step
from fedloom.exchange.averaged_data import AveragedData, exchanging
from fedloom.exchange.averaged_features import Again, At, behind
from fedloom.losses.directional_derivative import directional_derivative
from fedloom.methods.mixup import NUMBERS

PAPER = "Yoon et al., ICLR 2021"
LINK = "https://arxiv.org/abs/2107.00233"


@exchanging
def fedmix(
    lam: Annotated[float, Param("share of the average; 0 is FedAvg", low=0, high=1)] = 0.05,
    coefficient: Annotated[
        Literal["alg2", "eq5"], Param("weight of the derivative: lam (1 - lam), or lam")
    ] = "alg2",
    at: At = "",
    every_round: Again = False,
    *,
    averaged: AveragedData,
) -> Method:
    weight = lam if coefficient == "eq5" else lam * (1 - lam)

    def total(z: Tensor, y: Tensor, y_g: Tensor, slope: Tensor) -> Tensor:
        return (
            (1 - lam) * F.cross_entropy(z, y)
            + lam * F.cross_entropy(z, y_g.expand_as(z))
            + weight * slope
        )

    def scaled(x: Tensor, y: Tensor, job: Job, key: Key) -> tuple[Tensor, Tensor]:
        return (1 - lam) * x, y

    def expanded(step: Step) -> Tensor:
        x_g, y_g = averaged.draw(step.job, step.key)
        step.taps, slope = directional_derivative(
            step.model, step.x, step.y, x_g
        )  # this pass is the one that all terms share
        return total(step.logits, step.y, y_g, slope)

    def hidden(step: Step, h: Tensor, other: tuple[Tensor, Tensor]) -> Tensor:
        taps, slope = directional_derivative(step.model, (1 - lam) * h, step.y, other[0], after=at)
        return total(taps[step.model.names[-1]], step.y, other[1], slope)

    if not lam:
        return Method("fedmix")
    if at or every_round:
        return behind("fedmix", at, every_round, averaged, hidden)
    return Method(
        "fedmix",
        (Phase(loss=expanded, mix=scaled),),
        prologue=(averaged.exchange,),
        needs=(NUMBERS,),
    )
