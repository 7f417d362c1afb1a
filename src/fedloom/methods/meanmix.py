"""MeanMix: NaiveMix with averages of the client's own data, to see what mixing gives without anything of other clients in it.

    (1 - lam) CE(f(x'), y) + lam CE(f(x'), y_g),   x' = (1 - lam) x + lam x_g

(x_g, y_g) is drawn once a batch from averages of the client's own samples, whose groups are dealt anew each round; none is sent.
0 <= lam <= 1   share of the average; 0 is FedAvg.
size >= 0       samples an average; 0 is all of the client's, one average.
State     none.   Uploads  model.   Needs  a model of numbers, not of text.
Yoon et al., ICLR 2021, appendix D ("Mixup w/ local means"). That the loss is NaiveMix's is our reading. Departures: none.
"""

from __future__ import annotations

from typing import Annotated

from torch import Tensor

from fedloom.core.job import Job
from fedloom.core.key import Key
from fedloom.core.method import Method, Phase
from fedloom.core.spec import Param
from fedloom.exchange.averaged_data import averages, grouped
from fedloom.losses.mixup import Pair, beside, pair
from fedloom.methods.mixup import NUMBERS

PAPER = "Yoon et al., ICLR 2021"
LINK = "https://arxiv.org/abs/2107.00233"


def meanmix(
    lam: Annotated[float, Param("share of the average; 0 is FedAvg", low=0, high=1)] = 0.1,
    size: Annotated[int, Param("samples an average; 0: all of a client's", low=0)] = 0,
) -> Method:
    def means(job: Job) -> Pair:
        groups = grouped(job.data.labels, size, "random", "keep", job.key.fold("means"))
        return averages(job, groups, None)

    def mix(x: Tensor, y: Tensor, job: Job, key: Key) -> tuple[Tensor, Tensor]:
        x_g, y_g = job.once(means)
        at = key.below(len(y_g))
        return beside(pair(x, y, job.classes), (x_g[at], y_g[at]), 1 - lam)

    return Method("meanmix", (Phase(mix=mix if lam else None),), needs=(NUMBERS,))
