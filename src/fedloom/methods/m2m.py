"""M2m: fine-tunes on balanced batches with rare-class samples generated from frequent-class ones.

    x <- x - step g / ||g||,   g = d [CE(G(x), y_t) + lam P(x)_{y_s}] / dx,   starting from x_s,
         within the range of the data
    accepted if G's probability of y_t is at least gamma, and then with probability
         1 - beta^max(n_s - n_t, 0), which is also the weight with which x_s is drawn

G is the received model, P the client's current one, both with running statistics. The generated
sample replaces one of class y_t, and all layers train on the batch; losses/adversarial.py describes
how targets and sources are drawn.

beta     in [0, 1]; 1 is ROS.
lam      >= 0, weight of the logit of the source's class; 0 uses G alone.
accept   gamma.
step, iterations, noise   of the generation, in units of the range of the data. For images that is
         from black to white, 0 to 1 in the paper; here models see normalised images, so the range
         differs per channel. For tables it is the range of the client's own samples, per column.
epochs   >= 0, epochs on the final model; 0 is FedAvg.
lr, batch, momentum (Nesterov) and decay are the method's own.

State: none. Uploads: the model. Needs: a model with numeric inputs.
Reference: Kim et al., CVPR 2020, algorithm 1; FedAvg+M2m in Table 1 of FedAFA (Lu et al., ICASSP
2023), which gives no settings: the defaults are those of the M2m authors' runs. Departures: no
deferred start, as there is a single epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from fedloom.core.job import Job
from fedloom.core.learning_task import CLASSIFICATION_ONLY
from fedloom.core.method import Method, Phase
from fedloom.core.spec import Param
from fedloom.core.step import Step
from fedloom.core.transfer import to_device
from fedloom.data.client import ClientData
from fedloom.losses import adversarial
from fedloom.losses.adversarial import Pairs, SourceWeights, confidence, uniform_like
from fedloom.methods.finetune import Batch, Decay, Epochs, Momentum, Rate, finetuning_sgd
from fedloom.methods.mixup import NUMERIC_INPUT
from fedloom.methods.ros import class_balanced

PAPER = "Kim et al., CVPR 2020"
LINK = "https://arxiv.org/abs/2004.00431"


def m2m_source_weights(beta: float) -> SourceWeights:
    """1 - beta^max(n_s - n_t, 0): sources come from classes with more samples."""
    return lambda counts: 1 - beta ** adversarial.count_gaps(counts)


def data_range(job: Job) -> tuple[Tensor, Tensor]:
    """The lower end and the length of the range of the model's inputs."""
    if isinstance(job.data, ClientData):
        shift, scale = job.data.normalise.shift, job.data.normalise.scale
        if scale is not None and shift is not None:
            return shift, 255 * scale
    x, _ = job.data.batch(torch.arange(len(job.data)), train=False)
    return x.amin(0), x.amax(0) - x.amin(0)


@dataclass(frozen=True)
class Translation:
    """Turns sources into samples of their targets' classes, and decides which are accepted."""

    lam: float
    accept: float
    step: float
    iterations: int
    noise: bool

    def __call__(self, now: Step, pairs: Pairs) -> tuple[Tensor, Tensor]:
        received, current = adversarial.received_model(now), adversarial.current_model(now)
        low, length = now.job.once(data_range)
        y_t, y_s = now.y[pairs.targets], now.y[pairs.sources]

        def translation_loss(x: Tensor) -> Tensor:
            inputs = low + length * x
            value = F.cross_entropy(received(inputs), y_t)
            if self.lam:
                value = value + self.lam * current(inputs).gather(1, y_s[:, None]).mean()
            return value

        x = (now.x[pairs.sources] - low) / torch.where(length > 0, length, 1)
        if self.noise:
            draws = uniform_like(x, now.key.fold("noise"))
            x = adversarial.perturbed(x, draws, 0.5, 0.5).clamp(0, 1)
        x = adversarial.normalised_descent(x, translation_loss, self.step, self.iterations, 0, 1)
        x = low + length * x
        kept = uniform_like(pairs.weights, now.key.fold("taken")) < pairs.weights
        return x, to_device(kept, x.device) & (confidence(received(x), y_t) >= self.accept)


def m2m(
    beta: Annotated[
        float, Param("source weight is 1 - beta^max(n_s - n_t, 0); 1 is ROS", low=0, high=1)
    ] = 0.999,
    lam: Annotated[
        float, Param("weight of the current model's logit of the source class; 0 is none", low=0)
    ] = 0.5,
    accept: Annotated[
        float, Param("class probability from which a generated sample is accepted", low=0, high=1)
    ] = 0.9,
    step: Annotated[float, Param("step length of the generation", above=0)] = 0.1,
    iterations: Annotated[int, Param("steps of the generation", low=0)] = 10,
    noise: Annotated[bool, Param("whether the generation starts by adding noise")] = True,
    epochs: Epochs = 1,
    lr: Rate = 0.005,
    batch: Batch = 64,
    momentum: Momentum = 0.9,
    decay: Decay = 5e-4,
) -> Method:
    translate = Translation(lam, accept, step, iterations, noise)
    source_weights = m2m_source_weights(beta)

    def loss(now: Step) -> Tensor:
        pairs = adversarial.draw_pairs(now, source_weights)
        if not len(pairs.targets):
            return now.ce
        generated, accepted = translate(now, pairs)
        x = adversarial.replaced(now.x, pairs.targets, generated, accepted)
        return F.cross_entropy(now.model(x), now.y)

    solver = finetuning_sgd(epochs, lr, batch, momentum, decay)
    phase = Phase(loss, order=class_balanced, solver=solver)
    return Method(
        "m2m",
        finale=(phase,) if epochs else (),
        needs=(NUMERIC_INPUT,),
        tasks=CLASSIFICATION_ONLY,
        fixed_loss=bool(epochs),
    )
