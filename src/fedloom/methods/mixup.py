"""Mixup: each batch is blended with a shuffled copy of itself, samples and labels alike.

    x' = lam x + (1 - lam) x_perm,   y' = lam y + (1 - lam) y_perm,   lam ~ Beta(alpha, alpha), one lam and one permutation a batch

alpha >= 0   how evenly two samples are blended; 0 is FedAvg.
at           the block whose outputs are blended instead (for text: its embedding), all weights training; "" blends the samples.
State     none.   Uploads  model.   Needs  a model of numbers; of text, `at`.   Also called  localmix (as in FedMix's comparison).
Zhang et al., ICLR 2018, eq. (1), at every client; with `at`, Verma et al., ICML 2019. Labels become rows of probabilities:
their cross-entropy is lam CE(y) + (1 - lam) CE(y_perm), since cross-entropy is linear in the label. Departures: none.
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
from fedloom.core.method import Method, Need, Phase, inner_block
from fedloom.core.spec import Param
from fedloom.core.step import Step
from fedloom.losses.mixup import mixed

PAPER = "Zhang et al., ICLR 2018"
LINK = "https://arxiv.org/abs/1710.09412"
ALIASES = ("localmix",)


def takes_numbers(chain: Chain) -> bool:
    """Whether samples can be blended: characters cannot."""
    return not any(
        isinstance(layer, nn.Embedding) for layer in chain.block(chain.names[0]).modules()
    )


NUMBERS = Need("a model that takes numbers, not text", takes_numbers)


def mixup(
    alpha: Annotated[float, Param("how evenly two samples are blended; 0 is FedAvg", low=0)] = 0.1,
    at: Annotated[
        str, Param("block whose outputs are blended, for text its embedding; '' blends the samples")
    ] = "",
) -> Method:
    def mix(x: Tensor, y: Tensor, job: Job, key: Key) -> tuple[Tensor, Tensor]:
        draws = np.random.default_rng(key.seed)
        share, other = draws.beta(alpha, alpha), torch.from_numpy(draws.permutation(len(y)))
        return mixed(x, y, other, share, job.classes)

    def hidden(step: Step) -> Tensor:
        h, rows = mix(step.model.run(step.x, until=at), step.y, step.job, step.key)
        return F.cross_entropy(step.model.run(h, after=at), rows)

    phase = Phase(loss=hidden) if at else Phase(mix=mix)
    return Method(
        "mixup", (phase,) if alpha else (Phase(),), needs=(inner_block(at) if at else NUMBERS,)
    )
