"""MeanMix: NaiveMix with averages of the client's own data, an ablation of FedMix.

    (1 - lam) CE(f(x'), y) + lam CE(f(x'), y_g),   x' = (1 - lam) x + lam x_g

It shows what mixing achieves without any data of other clients. (x_g, y_g) is drawn once per batch
from averages of the client's own samples, which are regrouped each round. Nothing extra is sent.

lam    in [0, 1], share of the average; 0 is FedAvg.
size   >= 0, samples per average; 0 is a single average of all the client's samples.

State: none. Uploads: the model. Needs: a model with numeric inputs, not text.
Reference: Yoon et al., ICLR 2021, appendix D ("Mixup w/ local means"). That the loss is NaiveMix's
is our interpretation. Departures: none.
"""

from __future__ import annotations

from typing import Annotated

from torch import Tensor

from fedloom.core.job import Job
from fedloom.core.key import Key
from fedloom.core.learning_task import CLASSIFICATION_ONLY
from fedloom.core.method import Method, Phase
from fedloom.core.spec import Param
from fedloom.exchange.group_means import group_means, split_into_groups
from fedloom.losses.mixup import SoftLabelled, interpolated, with_one_hot_labels
from fedloom.methods.mixup import NUMERIC_INPUT

PAPER = "Yoon et al., ICLR 2021"
LINK = "https://arxiv.org/abs/2107.00233"


def meanmix(
    lam: Annotated[float, Param("share of the average; 0 is FedAvg", low=0, high=1)] = 0.1,
    size: Annotated[
        int, Param("samples per average; 0: one average of all the client's samples", low=0)
    ] = 0,
) -> Method:
    def own_means(job: Job) -> SoftLabelled:
        key = job.key.fold("means")
        groups = split_into_groups(job.data.labels, size, "random", "keep", key)
        return group_means(job.data, job.classes, groups)

    def mix(x: Tensor, y: Tensor, job: Job, key: Key) -> tuple[Tensor, Tensor]:
        x_g, y_g = job.once(own_means)
        at = key.below(len(y_g))
        return interpolated(with_one_hot_labels(x, y, job.classes), (x_g[at], y_g[at]), 1 - lam)

    return Method(
        "meanmix",
        (Phase(mix=mix if lam else None),),
        needs=(NUMERIC_INPUT,),
        tasks=CLASSIFICATION_ONLY,
    )
