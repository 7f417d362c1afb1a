"""FedAlign: the last feature block is held to the same Lipschitz constant at a quarter of its width as at full width.

    min_w  F_i(w) + mu L,   L = mean over the batch of (K_S - K_F)^2,   K = largest singular value of  f_before f_last^T / positions

K_F is of the full features, and no gradient goes through it. K_S is of the features that the last block, cut to its first channels
(models/subnetwork.py), makes of the first channels before it. Both by ten power iterations from all ones.

mu >= 0        weight; 0 is FedAvg, but for the clip.
width in (0,1) share of the channels that the narrow block keeps.
scale          "authors": L is scaled in each batch to the size of the cross-entropy, L CE/|L|, as in their code, without which it
               is thousands of times too large at the start; "paper": plain L.
clip >= 0      bound on the norm of the whole gradient; 0 is none.
State     none.   Uploads  model.   Needs  two blocks of features before the head, of layers that can be cut.
Mendieta et al., CVPR 2022, eq. (5) to (7). Departures: the rescaling and the clip are the authors', not the paper's. "Block L"
is the last block of the chain before its head, for ResNets the whole last stage. Of text, the steps are the positions; features
without positions have one. A narrow layer keeps a multiple of eight channels, of fewer than sixteen the plain share.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.method import Method, Need, Phase, blocks_needed
from fedloom.core.spec import Param
from fedloom.core.step import Loss, Step
from fedloom.losses.lipschitz import top_singular, transmitting
from fedloom.models.subnetwork import SubNetworks, can_be_slimmed
from fedloom.models.width_tracing import slimmed_channels

PAPER = "Mendieta et al., CVPR 2022"
LINK = "https://arxiv.org/abs/2111.14213"
LEAST = 1e-30  # a gap of zero has no scale; so it stays zero


def constants(step: Step, narrow: SubNetworks, width: float) -> tuple[Tensor, Tensor]:
    """The Lipschitz constants of the last feature block on each sample: at part of its width, and at full width."""
    before, last = step.model.names[-3:-1]
    slim, into = narrow(step.model, step.x, width), step.taps[before].detach()
    thin = slim.kept_of(into, before)
    made = slim.run(thin, after=before, until=last)
    dims = [slim.channels[name].dim for name in (before, last)]
    with torch.no_grad():
        full = top_singular(_between(into, step.taps[last], dims))
    return top_singular(_between(thin, made, dims)), full


def _between(before: Tensor, behind: Tensor, dims: list[int]) -> Tensor:
    return transmitting(before.movedim(dims[0], 1), behind.movedim(dims[1], 1))


def thinner(chain: Chain, width: float) -> bool:
    """Whether the last block of features, if there is one, has layers of fewer channels at this width; else K_S would be K_F."""
    weights = [p for name in chain.names[-2:-1] for p in chain.block(name).parameters()]
    return can_be_slimmed(chain, width) and (
        not weights or any(slimmed_channels(p.shape[0], width) < p.shape[0] for p in weights)
    )


def gap(mu: float, width: float, scale: str) -> Loss:
    """mu L, or scaled to mu times the cross-entropy."""
    narrow = SubNetworks()

    def term(step: Step) -> Tensor:
        ours, full = constants(step, narrow, width)
        apart = (ours - full).square().mean()
        if scale == "paper":
            return mu * apart
        return mu * (step.ce.detach() / apart.detach().clamp_min(LEAST)) * apart

    return term


def fedalign(
    mu: Annotated[
        float,
        Param("weight of the gap between the two widths; 0 is FedAvg, but for the clip", low=0),
    ] = 0.45,
    width: Annotated[
        float, Param("share of the channels that the narrow block keeps", above=0, below=1)
    ] = 0.25,
    scale: Annotated[
        Literal["authors", "paper"],
        Param("the gap scaled to the cross-entropy in each batch, or plain"),
    ] = "authors",
    clip: Annotated[float, Param("bound on the norm of the gradient; 0 is none", low=0)] = 10.0,
) -> Method:
    if not mu:
        return Method("fedalign", (Phase(clip=clip or None),))
    thin = Need(
        f"a last block of features with fewer channels at width {width:g}",
        lambda chain: thinner(chain, width),
    )
    return Method(
        "fedalign",
        (Phase(terms=(gap(mu, width, scale),), clip=clip or None),),
        needs=(blocks_needed(3), thin),
    )
