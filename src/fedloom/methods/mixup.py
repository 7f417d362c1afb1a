"""Mixup: each batch is blended with a shuffled copy of itself, samples and labels alike.

    x' = lam x + (1 - lam) x_perm,   y' = lam y + (1 - lam) y_perm,   lam ~ Beta(alpha, alpha), one lam and one permutation a batch

alpha >= 0   how evenly two samples are blended; 0 is FedAvg.
State     none.   Uploads  model.   Needs  a model of numbers, not of text.   Also called  localmix (as in FedMix's comparison).
Zhang et al., ICLR 2018, eq. (1), at every client. Labels become rows of probabilities: their cross-entropy is
lam CE(y) + (1 - lam) CE(y_perm), since cross-entropy is linear in the label. Departures: none.
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
from fedloom.core.method import Method, Need, Phase
from fedloom.core.words import Param

PAPER = "Zhang et al., ICLR 2018"
LINK = "https://arxiv.org/abs/1710.09412"
ALSO = ("localmix",)


def takes_numbers(chain: Chain) -> bool:
    """Whether samples can be blended: characters cannot."""
    return not any(isinstance(layer, nn.Embedding) for layer in chain.block(chain.names[0]).modules())


def blended(x: Tensor, y: Tensor, other: Tensor, share: float, classes: int) -> tuple[Tensor, Tensor]:
    """The share of each sample beside the rest of the one that `other` points to; labels as rows of probabilities."""
    rows, other = F.one_hot(y, classes).to(x.dtype), other.to(x.device)
    return torch.lerp(x[other], x, share), torch.lerp(rows[other], rows, share)


def mixup(alpha: Annotated[float, Param("how evenly two samples are blended; 0 is FedAvg", low=0)] = 0.1) -> Method:
    def mix(x: Tensor, y: Tensor, job: Job, key: Key) -> tuple[Tensor, Tensor]:
        draws = np.random.default_rng(key.seed)
        share, other = draws.beta(alpha, alpha), torch.from_numpy(draws.permutation(len(y)))
        return blended(x, y, other, share, job.classes)

    need = Need("a model that takes numbers, not text", takes_numbers)
    return Method("mixup", (Phase(mix=mix if alpha else None),), needs=(need,))
