"""FedAlign: matches the Lipschitz constants of the last feature block at full and at reduced width.

    min_w  F_i(w) + mu L,   L = mean over the batch of (K_S - K_F)^2
    K = spectral norm of the transmitting matrix  f_before f_last^T / positions

K_F uses the full block's features; no gradient flows through it. K_S uses the features of the
slimmed block, which keeps the first channels of every layer (models/subnetwork.py) and receives the
first channels of the features before it. Both take ten power iterations from the vector of ones.

mu      >= 0, weight of the alignment loss; 0 is FedAvg, apart from the clipping.
width   in (0, 1), share of the channels that the slimmed block keeps.
scale   "authors": L is rescaled per batch to the size of the cross-entropy, L CE/|L|, as in their
        code; without this it is thousands of times too large at the start. "paper": L as it is.
clip    >= 0, bound on the norm of the whole gradient; 0 is none.

State: none. Uploads: the model. Needs: two feature blocks before the head, of layers whose channels
can be slimmed.
Reference: Mendieta et al., CVPR 2022, eqs. (5) to (7). Departures: rescaling and clipping are from
the authors' code, not the paper. "Block L" is the chain's last block before the head, for ResNets
the whole last stage. For text, positions are time steps; features without positions count as one.
A slimmed layer keeps a multiple of eight channels, or the plain share if it has fewer than sixteen.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.method import Method, Need, Phase, blocks_needed
from fedloom.core.spec import Param
from fedloom.core.step import Loss, Step
from fedloom.losses.lipschitz import spectral_norm, transmitting_matrix
from fedloom.models.subnetwork import SubNetworks, can_be_slimmed
from fedloom.models.width_tracing import slimmed_channels

PAPER = "Mendieta et al., CVPR 2022"
LINK = "https://arxiv.org/abs/2111.14213"
TINY = 1e-30  # avoids dividing by an alignment loss of 0, which then stays 0


def lipschitz_constants(step: Step, narrow: SubNetworks, width: float) -> tuple[Tensor, Tensor]:
    """(K_S, K_F) of the last feature block, per sample."""
    before, last = step.model.names[-3:-1]
    slim, full_before = narrow(step.model, step.x, width), step.taps[before].detach()
    slim_before = slim.kept_of(full_before, before)
    slim_last = slim.run(slim_before, after=before, until=last)
    dims = [slim.channels[name].dim for name in (before, last)]
    with torch.no_grad():
        full = spectral_norm(_channels_first_matrix(full_before, step.taps[last], dims))
    return spectral_norm(_channels_first_matrix(slim_before, slim_last, dims)), full


def _channels_first_matrix(before: Tensor, after: Tensor, dims: list[int]) -> Tensor:
    """The transmitting matrix; dims: the channel dimensions of the two features."""
    return transmitting_matrix(before.movedim(dims[0], 1), after.movedim(dims[1], 1))


def slims_last_block(chain: Chain, width: float) -> bool:
    """Whether the last feature block, if any, has fewer channels at this width.

    Otherwise K_S would equal K_F.
    """
    if not can_be_slimmed(chain, width):
        return False
    weights = [p for name in chain.names[-2:-1] for p in chain.block(name).parameters()]
    return not weights or any(slimmed_channels(p.shape[0], width) < p.shape[0] for p in weights)


def alignment_term(mu: float, width: float, scale: str) -> Loss:
    """mu L, or L rescaled to mu times the task's loss."""
    narrow = SubNetworks()

    def term(step: Step) -> Tensor:
        slim, full = lipschitz_constants(step, narrow, width)
        loss = (slim - full).square().mean()
        if scale == "paper":
            return mu * loss
        return mu * (step.loss.detach() / loss.detach().clamp_min(TINY)) * loss

    return term


def fedalign(
    mu: Annotated[
        float,
        Param("weight of the alignment loss; 0 is FedAvg, apart from the clipping", low=0),
    ] = 0.45,
    width: Annotated[
        float, Param("share of the channels that the slimmed block keeps", above=0, below=1)
    ] = 0.25,
    scale: Annotated[
        Literal["authors", "paper"],
        Param("rescale the alignment loss to the cross-entropy in each batch, or not"),
    ] = "authors",
    clip: Annotated[float, Param("bound on the gradient norm; 0 is none", low=0)] = 10.0,
) -> Method:
    if not mu:
        return Method("fedalign", (Phase(clip=clip or None),))
    slimmable = Need(
        f"a last feature block that has fewer channels at width {width:g}",
        lambda chain: slims_last_block(chain, width),
    )
    phase = Phase(terms=(alignment_term(mu, width, scale),), clip=clip or None)
    return Method("fedalign", (phase,), needs=(blocks_needed(3), slimmable))
