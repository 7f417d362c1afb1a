"""GradAug: regularises the network by distilling it into slimmed sub-networks on resized images.

    min_w  F_i(w) + mu sum_{s=1..n} KL(softmax f(x; w) || softmax f_s(x_s; w))

The divergence is the mean over the batch, without gradient through f. The sub-network f_s keeps the
first channels of every layer (models/subnetwork.py), at a width drawn from [width, 1]. x_s is x
resized to a size drawn from `sizes` evenly spaced ones between 1 and `smallest`: by default 32, 28,
24 or 20 pixels of 32. Signals and volumes are resized in the same way, along all their axes.

n          >= 1, sub-networks per batch.
mu         >= 0, weight of each; 0 is FedAvg. FedAlign's authors use 2, 1.75, 1.5 and 1.25 for
           n = 1 to 4.
width      in (0, 1), the smallest width.
widths     "floor": the last of the n has the smallest width, as in the authors' code; "all": all n
           widths are drawn, as in the paper.
smallest   in (0, 1], the smallest image size; 1 does not resize, for samples that are not images.
sizes      >= 1, the number of sizes.

State: none. Uploads: the model. Needs: layers whose channels can be slimmed and, if images are
resized, a convolutional model that takes images of any size.
Reference: Yang et al., NeurIPS 2020, at every client as in FedAlign's comparison. Departures: none.
As in the authors' code, the gradient of one sub-network is computed before the next one runs, so
the activations of only one are in memory at a time, next to the full model's.
"""

from __future__ import annotations

import copy
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.key import Key
from fedloom.core.learning_task import CLASSIFICATION_ONLY
from fedloom.core.method import Method, Need, Phase
from fedloom.core.spec import Param
from fedloom.core.step import Step
from fedloom.losses.eager_gradient import eager_gradient
from fedloom.models.subnetwork import SubNetworks, can_be_slimmed
from fedloom.models.width_tracing import CONVOLUTIONS

PAPER = "Yang et al., NeurIPS 2020"
LINK = "https://arxiv.org/abs/2006.07989"
INTERPOLATION = {1: "linear", 2: "bilinear", 3: "trilinear"}  # by the number of axes resized

Widths = Annotated[
    Literal["floor", "all"],
    Param("one sub-network has the smallest width, or all widths are drawn"),
]


def draw_subnetworks(
    key: Key, n: int, width: float, widths: str, smallest: float, sizes: int
) -> list[tuple[float, float]]:
    """Draw the width of each sub-network, widest first, and the factor that resizes its images."""
    generator = key.fold("narrow").generator()
    count = n - (widths == "floor")
    drawn = width + (1 - width) * torch.rand(count, generator=generator, dtype=torch.float64)
    steps = torch.randint(sizes, (n,), generator=generator).tolist()
    chosen = [*sorted(drawn.tolist(), reverse=True), width][:n]
    factors = [1 - (1 - smallest) * step / max(1, sizes - 1) for step in steps]
    return list(zip(chosen, factors, strict=True))


def subnetwork_loss(step: Step, narrow: SubNetworks, width: float, factor: float) -> Tensor:
    """KL from the full network to the sub-network of this width on the resized batch."""
    x = step.x
    if factor != 1:
        size = [round(side * factor) for side in x.shape[2:]]
        x = F.interpolate(x, size=size, mode=INTERPOLATION[len(size)], align_corners=True)
    log_probabilities = F.log_softmax(narrow(step.model, step.x, width).run(x), dim=1)
    target = F.softmax(step.logits.detach(), dim=1)
    return F.kl_div(log_probabilities, target, reduction="batchmean")


def widths_to_check(smallest: float) -> list[float]:
    """Widths from the smallest to 1, close enough to meet every number of channels kept.

    Layers of fewer than sixteen channels keep any number, wider ones multiples of eight.
    """
    return [smallest + (1 - smallest) * step / 50 for step in range(51)]


def takes_any_size(chain: Chain) -> bool:
    """Whether the model takes samples of other sizes than the data's; found by trying two sizes."""
    first = next((layer for _, layer in chain.layers()), None)
    if not isinstance(first, CONVOLUTIONS):
        return False
    trial, like = copy.deepcopy(chain).eval(), first.weight
    axes = len(first.kernel_size)
    try:
        with torch.no_grad():
            samples = (like.new_zeros(1, first.in_channels, *[side] * axes) for side in (64, 40))
            return all(trial(sample).dim() == 2 for sample in samples)
    except RuntimeError:
        return False


def gradaug(
    n: Annotated[int, Param("sub-networks per batch", low=1)] = 2,
    mu: Annotated[float, Param("weight of each sub-network; 0 is FedAvg", low=0)] = 1.75,
    width: Annotated[float, Param("smallest width of a sub-network", above=0, below=1)] = 0.8,
    widths: Widths = "floor",
    smallest: Annotated[
        float,
        Param("smallest image, as a share of its side; 1 does not resize", above=0, high=1),
    ] = 0.625,
    sizes: Annotated[
        int, Param("number of image sizes, evenly spaced from 1 to the smallest", low=1)
    ] = 4,
) -> Method:
    narrow = SubNetworks()

    def subnetwork_term(step: Step) -> Tensor:
        weights = list(step.params.values())
        losses = [
            eager_gradient(subnetwork_loss(step, narrow, share, factor), weights)
            for share, factor in draw_subnetworks(step.key, n, width, widths, smallest, sizes)
        ]
        return mu * torch.stack(losses).sum()

    if not mu:
        return Method("gradaug", tasks=CLASSIFICATION_ONLY)
    slimmable = Need(
        "layers whose channels can be slimmed",
        lambda chain: all(can_be_slimmed(chain, drawn) for drawn in widths_to_check(width)),
    )
    any_size = Need(
        "a convolutional model that takes images of any size (smallest=1 works with all models)",
        takes_any_size,
    )
    needs = (slimmable, any_size) if smallest < 1 else (slimmable,)
    return Method(
        "gradaug", (Phase(terms=(subnetwork_term,)),), needs=needs, tasks=CLASSIFICATION_ONLY
    )
