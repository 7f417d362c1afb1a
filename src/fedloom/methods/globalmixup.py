"""Global Mixup: each sample is blended with a raw sample of any client; an upper bound that NEEDS RAW DATA of all clients.

    CE(f((1 - lam) x + lam x_j), (1 - lam) y + lam y_j),   another (x_j, y_j) for every sample x of a batch

Before round 0 every client gives raw samples away, to the server and to all others: nothing is private. It tells how good FedMix,
which approximates it, could be.
alpha >= 0      lam ~ Beta(alpha, alpha), drawn once a batch; 0 takes the fixed `lam`.
0 <= lam <= 1   fixed share of the other sample, where alpha is 0; both 0 is FedAvg.
samples >= 0    raw samples that each client gives away, drawn once; 0 is all of them, as in the paper (600 MB for CIFAR's 50,000).
exclude_self    whether a client draws samples of others only; if there are none, of all.
at              the block whose outputs are blended instead (for text: its embedding), all weights training; "" blends the samples.
State     server: the raw samples.   Uploads  model, and raw samples before round 0.   Needs  a model of numbers; of text, `at`.
Yoon et al., ICLR 2021, eq. (3). The paper prints no Beta: alpha = 1 is what mixup's authors take for CIFAR. Its table 5 fixes lam.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedloom.core.job import Job
from fedloom.core.key import Key
from fedloom.core.method import Exchange, Method, Phase, inner_block
from fedloom.core.params import Params
from fedloom.core.spec import Param
from fedloom.core.step import Step
from fedloom.losses.mixup import beside, pair
from fedloom.methods.mixup import NUMBERS

PAPER = "Yoon et al., ICLR 2021"
LINK = "https://arxiv.org/abs/2107.00233"


def raw(samples: int) -> Exchange:
    """Raw samples of every client, so many of each or all."""

    def client(job: Job, key: Key) -> Params:
        order = torch.randperm(len(job.data), generator=key.generator())
        x, y = job.data.batch(order[: samples or None], train=False)
        return {"x": x, "y": y, "owner": torch.full((len(y),), job.client)}

    def server(answers: Sequence[Params], key: Key) -> Params:
        return {name: torch.cat([answer[name] for answer in answers]) for name in answers[0]}

    def notice(sizes: Sequence[int], releases: int) -> str:
        given = sum(min(size, samples or size) for size in sizes)
        return f"RAW DATA: {given} of {sum(sizes)} samples leave their clients as they are, for the server and all others to see"

    return Exchange("raw", client, server, notice=notice)


def others(job: Job, exclude_self: bool) -> Tensor:
    """Where the samples lie that the client may draw: its own too, if there are no others."""
    owner = job.shared["raw"]["owner"]
    foreign = (owner != job.client).nonzero().flatten()
    return foreign if exclude_self and len(foreign) else torch.arange(len(owner))


def globalmixup(
    alpha: Annotated[
        float, Param("how evenly two samples are blended; 0 takes the fixed lam", low=0)
    ] = 1.0,
    lam: Annotated[
        float, Param("fixed share of the other sample, where alpha is 0", low=0, high=1)
    ] = 0.0,
    samples: Annotated[int, Param("raw samples that each client gives away; 0: all", low=0)] = 100,
    exclude_self: Annotated[bool, Param("whether a client draws samples of others only")] = False,
    at: Annotated[
        str, Param("block whose outputs are blended, for text its embedding; '' blends the samples")
    ] = "",
) -> Method:
    def drawn(job: Job, key: Key, count: int) -> tuple[Tensor, Tensor, float]:
        draws, among = np.random.default_rng(key.seed), job.once(others, exclude_self)
        share = 1 - (draws.beta(alpha, alpha) if alpha else lam)
        rows = among[torch.from_numpy(draws.integers(len(among), size=count))]
        return job.shared["raw"]["x"][rows], job.shared["raw"]["y"][rows], share

    def mix(x: Tensor, y: Tensor, job: Job, key: Key) -> tuple[Tensor, Tensor]:
        x_j, y_j, share = drawn(job, key, len(y))
        return beside(pair(x, y, job.classes), pair(x_j, y_j, job.classes), share)

    def hidden(step: Step) -> Tensor:
        x_j, y_j, share = drawn(step.job, step.key, len(step.y))
        own, other = step.model.run(torch.cat((step.x, x_j)), until=at).chunk(2)
        h, rows = beside(
            pair(own, step.y, step.job.classes), pair(other, y_j, step.job.classes), share
        )
        return F.cross_entropy(step.model.run(h, after=at), rows)

    if not alpha and not lam:
        return Method("globalmixup")
    phase, need = (Phase(loss=hidden), inner_block(at)) if at else (Phase(mix=mix), NUMBERS)
    return Method("globalmixup", (phase,), prologue=(raw(samples),), needs=(need,))
