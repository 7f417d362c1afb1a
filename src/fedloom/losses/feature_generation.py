"""Features of rare classes made of features of frequent ones, and the loss on them: FedAFA's, between two stretches of a model.

u are the blocks up to a cut and v those behind it. A maker is a closed model in evaluation whose u and v generate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.key import Key
from fedloom.core.step import Step
from fedloom.losses.adversarial import Pairs, confidence, descended, filled, shaken, uniform

Taken = tuple[Tensor, Tensor]  # features as generated, and whether each is taken
Labelled = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Generation:
    """How features become such of the classes y: noise or not, steps of a length, and the probability from which one is taken."""

    step: float
    iterations: int
    noise: bool
    clamp: bool
    accept: float

    def __call__(self, maker: Chain, cut: str, h: Tensor, y: Tensor, key: Key) -> Taken:
        least, most = h.min().item(), h.max().item()
        low, high = (min(0.0, least), most) if self.clamp else (-math.inf, math.inf)
        if self.noise:
            h = shaken(h, uniform(h, key.fold("noise")), (most + least) / 2, 1.0).clamp(low, high)
        h = descended(
            h,
            lambda h: F.cross_entropy(maker.run(h, after=cut), y),
            self.step,
            self.iterations,
            low,
        )
        return h, confidence(maker.run(h, after=cut), y) >= self.accept


def held(
    step: Step, cut: str, pairs: Pairs, maker: Chain, generate: Callable[[Tensor], Taken]
) -> tuple[Tensor, Tensor]:
    """The features of the batch, with the generated ones in their places and without. u stands, so it runs once for all."""
    own = maker.run(step.x, until=cut)
    made, taken = generate(own[pairs.sources])
    return filled(own, pairs.places[taken], made[taken]), own


def drifting(
    step: Step, cut: str, pairs: Pairs, maker: Chain, generate: Callable[[Tensor], Taken]
) -> tuple[Tensor, Tensor]:
    """The same where the norms of u are in training; order and number of the passes that move them are the authors'."""
    made, taken = generate(maker.run(step.x[pairs.sources], until=cut))
    places, sources = pairs.places[taken], pairs.sources[taken]
    with torch.no_grad():
        swapped = step.model.taps(filled(step.x, places, step.x[sources]))[cut]
        step.model.run(step.x, until=cut)
        return filled(swapped, places, made[taken]), step.model.run(step.x, until=cut)


def afa(classify: Callable[[Tensor], Tensor], made: Labelled, own: Labelled, lam: float) -> Tensor:
    """L_AFA, eq. (6) of Lu et al.: lam L_gen + (1 - lam) L_ori."""
    gen, ori = (F.cross_entropy(classify(h), y) for h, y in (made, own))
    return lam * gen + (1 - lam) * ori
