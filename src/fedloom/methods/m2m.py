"""M2m: fine-tuning on balanced draws in which samples of rare classes are made of samples of frequent ones, as pictures.

    x <- x - step g / ||g||,   g = d [CE(G(x), y_t) + lam P(x)_{y_s}] / dx,   from x_s on, within the range of the data
    taken if G gives y_t at least gamma, and then with probability 1 - beta^max(n_s - n_t, 0), by which x_s was drawn, too

G is the received model, P the client's as it stands, both with their running statistics. The sample fills the place of a sample of
class y_t, and all layers train on the batch; targets and sources are told in losses/adversarial.py.
0 <= beta <= 1   1 is ROS.   lam >= 0   weight of the source's logit; 0 asks G alone.   accept: gamma.
step, iterations, noise   of the generation, in units of the range of the data. Of images it is that from black to white, 0 to 1 in
          the paper; models see them normalised, so here it has its own ends in every channel. Tables have none, and it is that of
          the client's own samples in every column.
epochs >= 0   on the final model; 0 is FedAvg.   lr, batch, momentum (Nesterov's) and decay belong to it.
State     none.   Uploads  model.   Needs  a model that takes numbers.
Kim et al., CVPR 2020, algorithm 1; FedAvg+M2m in Table 1 of FedAFA (Lu et al., ICASSP 2023), which gives no settings: these are
those of the authors' runs. Departures: none starts later than the others, as there is one epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from fedloom.core.job import Job
from fedloom.core.method import Method, Phase
from fedloom.core.spec import Param
from fedloom.core.step import Step
from fedloom.data.client import ClientData
from fedloom.losses.adversarial import (
    Pairs,
    Weigh,
    confidence,
    descended,
    filled,
    itself,
    original,
    paired,
    shaken,
    surplus,
    uniform,
)
from fedloom.methods.finetune import Batch, Decay, Epochs, Momentum, Rate, tuning
from fedloom.methods.mixup import NUMBERS
from fedloom.methods.ros import balanced

PAPER = "Kim et al., CVPR 2020"
LINK = "https://arxiv.org/abs/2004.00431"


def by_surplus(beta: float) -> Weigh:
    """Sources by how many samples more their class has."""
    return lambda counts: 1 - beta ** surplus(counts)


def extent(job: Job) -> tuple[Tensor, Tensor]:
    """Where the range of the data begins, as a model sees it, and how long it is."""
    if (
        isinstance(job.data, ClientData)
        and (how := job.data.normalise).scale is not None
        and how.shift is not None
    ):
        return how.shift, 255 * how.scale
    x, _ = job.data.batch(torch.arange(len(job.data)), train=False)
    return x.amin(0), x.amax(0) - x.amin(0)


@dataclass(frozen=True)
class Translation:
    """How sources become samples of their targets' classes, and which of them are taken."""

    lam: float
    accept: float
    step: float
    iterations: int
    noise: bool

    def __call__(self, now: Step, pairs: Pairs) -> tuple[Tensor, Tensor]:
        theirs, own, (low, length) = original(now), itself(now), now.job.once(extent)
        y_t, y_s = now.y[pairs.places], now.y[pairs.sources]

        def far(x: Tensor) -> Tensor:
            seen = low + length * x
            value = F.cross_entropy(theirs(seen), y_t)
            return (
                value + self.lam * own(seen).gather(1, y_s[:, None]).mean() if self.lam else value
            )

        x = (now.x[pairs.sources] - low) / torch.where(length > 0, length, 1)
        if self.noise:
            x = shaken(x, uniform(x, now.key.fold("noise")), 0.5, 0.5).clamp(0, 1)
        x = low + length * descended(x, far, self.step, self.iterations, 0, 1)
        taken = uniform(pairs.weights, now.key.fold("taken")) < pairs.weights
        return x, taken.to(x.device) & (confidence(theirs(x), y_t) >= self.accept)


def m2m(
    beta: Annotated[
        float, Param("how soon a larger class is a good source; 1 is ROS", low=0, high=1)
    ] = 0.999,
    lam: Annotated[
        float, Param("weight of the client's own logit for the source's class; 0 is none", low=0)
    ] = 0.5,
    accept: Annotated[
        float, Param("probability from which on a generated sample is taken", low=0, high=1)
    ] = 0.9,
    step: Annotated[float, Param("length of a step of the generation", above=0)] = 0.1,
    iterations: Annotated[int, Param("steps of the generation", low=0)] = 10,
    noise: Annotated[bool, Param("whether the generation starts with noise")] = True,
    epochs: Epochs = 1,
    lr: Rate = 0.005,
    batch: Batch = 64,
    momentum: Momentum = 0.9,
    decay: Decay = 5e-4,
) -> Method:
    translated, weigh = Translation(lam, accept, step, iterations, noise), by_surplus(beta)

    def loss(now: Step) -> Tensor:
        pairs = paired(now, weigh)
        if not len(pairs.places):
            return now.ce
        made, taken = translated(now, pairs)
        return F.cross_entropy(now.model(filled(now.x, pairs.places[taken], made[taken])), now.y)

    phase = Phase(loss, order=balanced, solver=tuning(epochs, lr, batch, momentum, decay))
    return Method("m2m", finale=(phase,) if epochs else (), needs=(NUMBERS,))
