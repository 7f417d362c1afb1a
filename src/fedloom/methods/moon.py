"""MOON: features held near those of the received model and away from those of the client's own last one.

    min_w  F_i(w) + mu E_x[ -log( e^{cos(z, z_glob)/tau} / (e^{cos(z, z_glob)/tau} + e^{cos(z, z_prev)/tau}) ) ]

z           output of a projection in the path to the classes: feature -> Linear(d, d) -> ReLU -> Linear(d, projection) = z -> fc.
mu >= 0     weight; 0 is FedAvg on the model with the projection.
tau > 0     temperature.
projection  width of z; 0 adds no layer, and z is what the classifier takes.
norm        statistics by which the two other models normalise: of the batch (as the authors run them), or the running ones.
State     client: its last local weights, statistics included.   Uploads  model.
Needs     a last block that ends with a linear layer, of images, tables or text.
Li et al., CVPR 2021, eq. (4), as FedAlign's authors compare with it. A client that is asked for the first time has the received
model as its last one. Both similarities are then equal, the term is mu ln 2 with gradient 0, and no other model is run.
Departures: the other two models run without gradient, where the authors discard theirs, and draw nothing: in them dropout and its
kin are in evaluation.
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
from fedloom.losses.contrastive import contrast
from fedloom.models.projection_head import BLOCK, accepts_projection_head, projection_head

PAPER = "Li et al., CVPR 2021"
LINK = "https://arxiv.org/abs/2103.16257"
NEED = Need(
    f"a last block that ends with a linear layer, and no block called '{BLOCK}'",
    accepts_projection_head,
)


def moon(
    mu: Annotated[
        float, Param("weight of the contrast; 0 is FedAvg on the projected model", low=0)
    ] = 1.0,
    tau: Annotated[float, Param("temperature of the similarities", above=0)] = 0.5,
    projection: Annotated[int, Param("width of the projection; 0 is none", low=0)] = 256,
    norm: Annotated[
        Literal["batch", "running"], Param("statistics by which the other two models normalise")
    ] = "batch",
) -> Method:
    def others(job: Job) -> tuple[Chain, Chain] | None:
        return (
            (job.frozen("received", norm), job.frozen("moon", norm))
            if "moon" in job.memories
            else None
        )

    def pull(step: Step) -> Tensor:
        z, models = step.taps[BLOCK], step.job.once(others)
        if models is None:
            return z.new_full((), mu * math.log(2))
        with torch.no_grad():
            # to the classes, which nobody reads: 0.02 % more work, and the count of the authors' three whole models
            received, last = (model.taps(step.x)[BLOCK] for model in models)
        return mu * contrast(z, received, last, tau)

    def remember(outcome: Outcome) -> Extra:
        return Extra(memories={"moon": outcome.weights["model"]})

    terms, after = ((pull,), (remember,)) if mu else ((), ())
    return Method(
        "moon", (Phase(terms=terms),), after, needs=(NEED,), reshape=(projection_head(projection),)
    )
