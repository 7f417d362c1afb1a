"""Mixup: each client trains on convex combinations of the samples in a batch and of their labels.

    x' = lam x + (1 - lam) x_perm,   y' = lam y + (1 - lam) y_perm,   lam ~ Beta(alpha, alpha)

lam and the permutation are drawn once per batch.

alpha   >= 0, parameter of the Beta distribution; larger mixes samples more evenly, 0 is FedAvg.
at      the block whose outputs are mixed instead of the samples, all weights training (manifold
        mixup); for text its embedding. "" mixes the samples.

State: none. Uploads: the model. Needs: a model with numeric inputs, or `at` for text.
Alias: localmix (its name in FedMix's comparison).
Reference: Zhang et al., ICLR 2018, eq. (1), at every client; with `at`, Verma et al., ICML 2019.
Labels become rows of probabilities; their cross-entropy is lam CE(y) + (1 - lam) CE(y_perm), since
cross-entropy is linear in the label. Departures: none.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.core.job import Job
from fedloom.core.key import Key
from fedloom.core.learning_task import CLASSIFICATION_ONLY
from fedloom.core.method import Method, Need, Phase, inner_block
from fedloom.core.spec import Param
from fedloom.core.step import Step
from fedloom.losses.mixup import mixed_within_batch

PAPER = "Zhang et al., ICLR 2018"
LINK = "https://arxiv.org/abs/1710.09412"
ALIASES = ("localmix",)


def has_numeric_input(chain: Chain) -> bool:
    """Whether inputs can be mixed; the characters of a text cannot."""
    first = chain.block(chain.names[0])
    return not any(isinstance(layer, nn.Embedding) for layer in first.modules())


NUMERIC_INPUT = Need("a model that takes numbers, not text", has_numeric_input, of_numbers=True)


def mixup(
    alpha: Annotated[
        float, Param("Beta(alpha, alpha) draws the mixing ratio; 0 is FedAvg", low=0)
    ] = 0.1,
    at: Annotated[
        str, Param("block whose outputs are mixed; for text its embedding; '': mix the samples")
    ] = "",
) -> Method:
    def mix(x: Tensor, y: Tensor, job: Job, key: Key) -> tuple[Tensor, Tensor]:
        draws = np.random.default_rng(key.seed)
        share, partners = draws.beta(alpha, alpha), torch.from_numpy(draws.permutation(len(y)))
        return mixed_within_batch(x, y, partners, share, job.classes)

    def feature_mixup_loss(step: Step) -> Tensor:
        h, labels = mix(step.model.run(step.x, until=at), step.y, step.job, step.key)
        return F.cross_entropy(step.model.run(h, after=at), labels)

    need = inner_block(at) if at else NUMERIC_INPUT
    phase = Phase(loss=feature_mixup_loss) if at else Phase(mix=mix)
    return Method(
        "mixup",
        (phase if alpha else Phase(),),
        needs=(need,),
        tasks=CLASSIFICATION_ONLY,
        fixed_loss=bool(at and alpha),
    )
