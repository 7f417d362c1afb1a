"""Global Mixup: mixup with raw samples of all clients; an upper bound that shares RAW DATA.

    CE(f((1 - lam) x + lam x_j), (1 - lam) y + lam y_j)

A partner (x_j, y_j) is drawn for every sample x of a batch. Before round 0 every client sends raw
samples to the server and to all other clients: nothing is private. It shows what FedMix, which
approximates it, could reach.

alpha          >= 0, lam ~ Beta(alpha, alpha), drawn once per batch; 0 uses the fixed `lam`.
lam            in [0, 1], fixed share of the other sample if alpha is 0; both 0 is FedAvg.
samples        >= 0, raw samples that each client shares, drawn once; 0 is all of them, as in the
               paper (600 MB for CIFAR's 50,000).
exclude_self   whether a client draws only other clients' samples; if there are none, from all.
at             the block whose outputs are mixed instead of the samples, all weights training; for
               text its embedding. "" mixes the samples.

State: the raw samples at the server. Uploads: the model, and raw samples before round 0.
Needs: a model with numeric inputs, or `at` for text.
Reference: Yoon et al., ICLR 2021, eq. (3). The paper does not give the Beta distribution: alpha = 1
is what mixup's authors use for CIFAR. Its table 5 fixes lam.
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
from fedloom.core.learning_task import CLASSIFICATION_ONLY
from fedloom.core.method import Exchange, Method, Phase, inner_block
from fedloom.core.params import Params
from fedloom.core.spec import Param
from fedloom.core.step import Step
from fedloom.core.transfer import to_device
from fedloom.losses.mixup import interpolated, with_one_hot_labels
from fedloom.methods.mixup import NUMERIC_INPUT

PAPER = "Yoon et al., ICLR 2021"
LINK = "https://arxiv.org/abs/2107.00233"


def raw_data_exchange(samples: int) -> Exchange:
    """Every client sends this many raw samples, or all with 0."""

    def client(job: Job, key: Key) -> Params:
        order = torch.randperm(len(job.data), generator=key.generator())
        x, y = job.data.batch(order[: samples or None], train=False)
        return {"x": x, "y": y, "owner": torch.full((len(y),), job.client)}

    def server(answers: Sequence[Params], key: Key) -> Params:
        return {name: torch.cat([answer[name] for answer in answers]) for name in answers[0]}

    def notice(sizes: Sequence[int], releases: int) -> str:
        sent = sum(min(size, samples or size) for size in sizes)
        return (
            f"RAW DATA: clients send {sent} of {sum(sizes)} samples unchanged to the server and to "
            "all other clients"
        )

    return Exchange("raw", client, server, notice=notice)


def drawable_samples(job: Job, exclude_self: bool) -> Tensor:
    """Positions of the raw samples a client may draw; its own too if there are no others."""
    owner = job.shared["raw"]["owner"]
    foreign = (owner != job.client).nonzero().flatten()
    return foreign if exclude_self and len(foreign) else torch.arange(len(owner))


def globalmixup(
    alpha: Annotated[
        float, Param("Beta(alpha, alpha) draws the mixing ratio; 0 uses the fixed lam", low=0)
    ] = 1.0,
    lam: Annotated[
        float, Param("fixed share of the other sample if alpha is 0", low=0, high=1)
    ] = 0.0,
    samples: Annotated[int, Param("raw samples that each client shares; 0: all", low=0)] = 100,
    exclude_self: Annotated[
        bool, Param("whether a client draws only other clients' samples")
    ] = False,
    at: Annotated[
        str, Param("block whose outputs are mixed; for text its embedding; '': mix the samples")
    ] = "",
) -> Method:
    def draw(job: Job, key: Key, count: int) -> tuple[Tensor, Tensor, float]:
        rng, drawable = np.random.default_rng(key.seed), job.once(drawable_samples, exclude_self)
        share = 1 - (rng.beta(alpha, alpha) if alpha else lam)
        rows = drawable[torch.from_numpy(rng.integers(len(drawable), size=count))]
        x, y = job.shared["raw"]["x"], job.shared["raw"]["y"]
        rows = to_device(rows, x.device)
        return x[rows], y[rows], share

    def mix(x: Tensor, y: Tensor, job: Job, key: Key) -> tuple[Tensor, Tensor]:
        x_j, y_j, share = draw(job, key, len(y))
        own = with_one_hot_labels(x, y, job.classes)
        return interpolated(own, with_one_hot_labels(x_j, y_j, job.classes), share)

    def feature_mixup_loss(step: Step) -> Tensor:
        classes = step.job.classes
        x_j, y_j, share = draw(step.job, step.key, len(step.y))
        h, h_j = step.model.run(torch.cat((step.x, x_j)), until=at).chunk(2)
        own = with_one_hot_labels(h, step.y, classes)
        mixed, labels = interpolated(own, with_one_hot_labels(h_j, y_j, classes), share)
        return F.cross_entropy(step.model.run(mixed, after=at), labels)

    if not alpha and not lam:
        return Method("globalmixup", tasks=CLASSIFICATION_ONLY)
    if at:
        phase, need = Phase(loss=feature_mixup_loss), inner_block(at)
    else:
        phase, need = Phase(mix=mix), NUMERIC_INPUT
    return Method(
        "globalmixup",
        (phase,),
        prologue=(raw_data_exchange(samples),),
        needs=(need,),
        tasks=CLASSIFICATION_ONLY,
        fixed_loss=bool(at),
    )
