"""FedMix: approximates mixup over all clients' data by a Taylor expansion that needs only averages.

    (1 - lam) CE(z, y) + lam CE(z, y_g) + c J
    z = f(u),   u = (1 - lam) x,   J = 1/B sum_i d CE(f(u_i), y_i) / du_i . x_g

(x_g, y_g) is drawn once per batch, uniformly from the averages that all clients send before round 0
(exchange/averaged_data_exchange.py). J is part of the loss, so its gradient with respect to the
weights involves second derivatives (losses/directional_derivative.py).

lam           in [0, 1], share of the average; 0 is FedAvg.
coefficient   c: "alg2" is lam (1 - lam), as in the paper's algorithm 2; "eq5" is lam, as in its
              eq. (5), the same up to O(lam^2).
derivative    "paper" is J as above. "common" is J / B, as most public implementations have it: they
              differentiate the batch's mean cross-entropy, which contains the 1/B, and then average
              over the batch again. With a batch of one the two are the same.
at            the block whose outputs are mixed instead of the samples; for text its embedding. One
              phase trains the blocks after it on the mixed loss, then a second trains the whole
              model without mixing (exchange/averaged_features.py). "" mixes the samples.
every_round   whether clients average the outputs of `at` and send them before every round. For an
              embedding, sending once is enough.
The other parameters are those of the exchange.

State: the averages at the server, unless they are sent every round.
Uploads: the model, and averages of data before round 0 or every round.
Needs: a model with numeric inputs, or `at` for text.
Reference: Yoon et al., ICLR 2021. Departures: none from the paper; its code is not public.
Results that others report for FedMix are mostly those of derivative="common", where J is too small
by the batch size, so that the method is close to scaling inputs and mixing labels. The loss is
expanded around (1 - lam) x, so it depends on where 0 is: the normalisation of samples is part of
the method. J, and with it the loss, has no lower bound. The run says once that its loss has fallen
below 0; in one run accuracy then dropped (docs/results/fedmix.md, handwriting). Combines with
methods that neither mix batches nor replace the loss. Other methods' terms then see the batch
scaled by 1 - lam.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

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
from fedloom.losses.directional_derivative import directional_derivative
from fedloom.methods.mixup import NUMERIC_INPUT

PAPER = "Yoon et al., ICLR 2021"
LINK = "https://arxiv.org/abs/2107.00233"


@exchanging
def fedmix(
    lam: Annotated[float, Param("share of the average; 0 is FedAvg", low=0, high=1)] = 0.05,
    coefficient: Annotated[
        Literal["alg2", "eq5"],
        Param("weight of the directional derivative J: lam (1 - lam), or lam"),
    ] = "alg2",
    derivative: Annotated[
        Literal["paper", "common"],
        Param("J as in the paper, or divided by the batch size once more, as commonly implemented"),
    ] = "paper",
    at: MixedBlock = "",
    every_round: EveryRound = False,
    *,
    averaged: AveragedData,
) -> Method:
    weight = lam if coefficient == "eq5" else lam * (1 - lam)

    def total(z: Tensor, y: Tensor, y_g: Tensor, slope: Tensor) -> Tensor:
        own, other = F.cross_entropy(z, y), F.cross_entropy(z, y_g.expand_as(z))
        if derivative == "common":
            slope = slope / len(y)
        return (1 - lam) * own + lam * other + weight * slope

    def scaled(x: Tensor, y: Tensor, job: Job, key: Key) -> tuple[Tensor, Tensor]:
        return (1 - lam) * x, y

    def loss(step: Step) -> Tensor:
        x_g, y_g = averaged.draw(step.job, step.key)
        # All terms of the objective share this forward pass.
        step.taps, slope = directional_derivative(step.model, step.x, step.y, x_g)
        return total(step.logits, step.y, y_g, slope)

    def feature_loss(step: Step, h: Tensor, other: tuple[Tensor, Tensor]) -> Tensor:
        h_g, y_g = other
        u = (1 - lam) * h
        taps, slope = directional_derivative(step.model, u, step.y, h_g, after=at)
        return total(taps[step.model.names[-1]], step.y, y_g, slope)

    if not lam:
        return Method("fedmix", tasks=CLASSIFICATION_ONLY)
    if at or every_round:
        mixing = feature_mixing_method("fedmix", at, every_round, averaged, feature_loss)
    else:
        phase, prologue = Phase(loss=loss, mix=scaled), (averaged.exchange,)
        mixing = Method(
            "fedmix", (phase,), prologue=prologue, needs=(NUMERIC_INPUT,), tasks=CLASSIFICATION_ONLY
        )
    return replace(mixing, fixed_loss=True, loss_floor=0.0)
