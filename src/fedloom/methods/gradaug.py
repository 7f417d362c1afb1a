"""GradAug: the model also learns as a crowd of narrower ones, which see smaller images and are taught by the full one.

    min_w  F_i(w) + mu sum_{s=1..n} KL(softmax f(x; w) || softmax f_s(x_s; w)),   the mean over the batch, no gradient through f

f_s shares the first channels of every layer (models/subnetwork.py), at a width drawn from [width, 1]. x_s is x, resized to a size drawn
from `sizes` even steps between 1 and `smallest`: 32, 28, 24 or 20 pixels of 32.

n >= 1             narrow models a batch.
mu >= 0            weight of each; 0 is FedAvg. FedAlign's authors take 2, 1.75, 1.5 and 1.25 for n = 1 to 4.
width in (0,1)     the least width.
widths             "floor": the last of the n has the least width, as in the authors' code; "all": all n are drawn, as in the paper.
smallest in (0,1]  the smallest image; 1 leaves samples as they are, for those that are not images.
sizes >= 1         how many sizes there are.
State     none.   Uploads  model.   Needs  layers that can be cut, and a convolutional model that takes images of any size.
Yang et al., NeurIPS 2020, at every client as in FedAlign's comparison. Departures: none. As in the authors' code the
gradient of one narrow model is taken before the next one runs, so that the features of only one are held beside the full model's.
"""

from __future__ import annotations

import copy
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.core.key import Key
from fedloom.core.method import Method, Need, Phase
from fedloom.core.spec import Param
from fedloom.core.step import Step
from fedloom.losses.eager_gradient import eager_gradient
from fedloom.models.subnetwork import SubNetworks, can_be_slimmed

PAPER = "Yang et al., NeurIPS 2020"
LINK = "https://arxiv.org/abs/2006.07989"

Widths = Annotated[
    Literal["floor", "all"],
    Param("one narrow model has the least width, or the widths of all are drawn"),
]


def draws(
    key: Key, n: int, width: float, widths: str, smallest: float, sizes: int
) -> list[tuple[float, float]]:
    """For each narrow model its width, the widest first, and the factor of its images' size."""
    noise = key.fold("narrow").generator()
    drawn = width + (1 - width) * torch.rand(
        n - (widths == "floor"), generator=noise, dtype=torch.float64
    )
    steps = torch.randint(sizes, (n,), generator=noise).tolist()
    lengths = [*sorted(drawn.tolist(), reverse=True), width][:n]
    return [
        (length, 1 - (1 - smallest) * step / max(1, sizes - 1))
        for length, step in zip(lengths, steps, strict=True)
    ]


def lesson(step: Step, narrow: SubNetworks, width: float, factor: float) -> Tensor:
    """What the narrow model of this width makes of the resized batch, held to what the full one says: their divergence."""
    x = step.x
    if factor != 1:
        x = F.interpolate(
            x,
            size=[round(side * factor) for side in x.shape[2:]],
            mode="bilinear",
            align_corners=True,
        )
    says = F.log_softmax(narrow(step.model, step.x, width).run(x), dim=1)
    return F.kl_div(says, F.softmax(step.logits.detach(), dim=1), reduction="batchmean")


def takes_any_size(chain: Chain) -> bool:
    """Whether images may have another size than those of the data, found by trying two."""
    first = next((layer for _, layer in chain.layers()), None)
    if not isinstance(first, nn.Conv2d):
        return False
    trial, like = copy.deepcopy(chain).eval(), first.weight
    try:
        with torch.no_grad():
            return all(
                trial(like.new_zeros(1, first.in_channels, side, side)).dim() == 2
                for side in (64, 40)
            )
    except RuntimeError:
        return False


def gradaug(
    n: Annotated[int, Param("narrow models a batch", low=1)] = 2,
    mu: Annotated[float, Param("weight of each narrow model; 0 is FedAvg", low=0)] = 1.75,
    width: Annotated[float, Param("least width of a narrow model", above=0, below=1)] = 0.8,
    widths: Widths = "floor",
    smallest: Annotated[
        float,
        Param(
            "smallest image, as a share of its side; 1 leaves samples as they are", above=0, high=1
        ),
    ] = 0.625,
    sizes: Annotated[
        int, Param("sizes of images, evenly spaced from 1 to the smallest", low=1)
    ] = 4,
) -> Method:
    narrow = SubNetworks()

    def crowd(step: Step) -> Tensor:
        drawn = draws(step.key, n, width, widths, smallest, sizes)
        weights = list(step.params.values())
        return (
            mu
            * torch.stack(
                [
                    eager_gradient(lesson(step, narrow, share, factor), weights)
                    for share, factor in drawn
                ]
            ).sum()
        )

    if not mu:
        return Method("gradaug")
    cut = Need("layers that can be cut", lambda chain: can_be_slimmed(chain, width))
    any_size = Need(
        "a convolutional model that takes images of any size (smallest=1 takes all models)",
        takes_any_size,
    )
    return Method(
        "gradaug", (Phase(terms=(crowd,)),), needs=(cut, any_size) if smallest < 1 else (cut,)
    )
