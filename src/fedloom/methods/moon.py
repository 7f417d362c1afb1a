"""MOON: contrasts local features with those of the global and of the previous local model.

The model-contrastive loss pulls features towards the global model's and pushes them away from those
of the client's previous local model.

    min_w  F_i(w) + mu E_x[ -log( e^{cos(z, z_glob)/tau} /
                                  (e^{cos(z, z_glob)/tau} + e^{cos(z, z_prev)/tau}) ) ]

z            output of a projection head before the classifier:
             feature -> Linear(d, d) -> ReLU -> Linear(d, projection) = z -> fc.
mu           >= 0, weight of the contrastive loss; 0 is FedAvg on the model with the projection.
tau          > 0, temperature.
projection   width of z; 0 adds no layers, and z is the classifier's input.
norm         statistics by which the global and the previous local model normalise: the batch's (as
             the authors run them) or the running ones.

State: each client's last local weights, including statistics. Uploads: the model.
Needs: a last block that ends with a linear layer, for images, tables or text.
Reference: Li et al., CVPR 2021, eq. (4), as in FedAlign's comparison. When a client is first
sampled, its previous model is the received one: both similarities are equal, the loss is mu ln 2
with gradient 0, and neither other model is run. Departures: the other two models run without
gradients, where the authors compute and discard them, and with dropout and other random layers in
evaluation mode.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.job import Job
from fedloom.core.method import Extra, Method, Need, Outcome, Phase
from fedloom.core.spec import Param
from fedloom.core.step import Step
from fedloom.losses.contrastive import contrastive_loss
from fedloom.models.projection_head import BLOCK, accepts_projection_head, projection_head

PAPER = "Li et al., CVPR 2021"
LINK = "https://arxiv.org/abs/2103.16257"
NEED = Need(
    f"a last block that ends with a linear layer, and no block called '{BLOCK}'",
    accepts_projection_head,
    by_cutting=True,
)


def moon(
    mu: Annotated[
        float,
        Param("weight of the contrastive loss; 0 is FedAvg with the projection", low=0),
    ] = 1.0,
    tau: Annotated[float, Param("temperature of the contrastive loss", above=0)] = 0.5,
    projection: Annotated[int, Param("width of the projection; 0 is none", low=0)] = 256,
    norm: Annotated[
        Literal["batch", "running"],
        Param("statistics by which the global and previous local model normalise"),
    ] = "batch",
) -> Method:
    def global_and_previous(job: Job) -> tuple[Chain, Chain] | None:
        if "moon" not in job.memories:
            return None
        return job.frozen("received", norm), job.frozen("moon", norm)

    def contrast(step: Step) -> Tensor:
        z, models = step.taps[BLOCK], step.job.once(global_and_previous)
        if models is None:
            return z.new_full((), mu * math.log(2))
        with torch.no_grad():
            # Run up to the logits, although they are not used: 0.02 % more work, and the cost is
            # then that of the authors' three full models.
            z_global, z_previous = (model.taps(step.x)[BLOCK] for model in models)
        return mu * contrastive_loss(z, z_global, z_previous, tau)

    def remember(outcome: Outcome) -> Extra:
        return Extra(memories={"moon": outcome.weights["model"]})

    terms, after = ((contrast,), (remember,)) if mu else ((), ())
    phase = Phase(terms=terms)
    return Method("moon", (phase,), after, needs=(NEED,), reshape=(projection_head(projection),))
