"""FedAFA: features of rare classes generated from features of frequent ones, and the loss on them.

u are the blocks up to a cut and v the blocks after it. The generating model (`gen_model`) is frozen
and in evaluation mode; its u extracts the source features, and its v guides the generation.
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
from fedloom.core.transfer import in_float64
from fedloom.losses.adversarial import (
    Pairs,
    confidence,
    normalised_descent,
    perturbed,
    replaced,
    uniform_like,
)

Generated = tuple[Tensor, Tensor]  # generated features, and whether each is accepted
Labelled = tuple[Tensor, Tensor]  # features and labels


@dataclass(frozen=True)
class Generation:
    """Turns source features into features of the classes y.

    step, iterations   length and number of the gradient steps.
    noise              whether to add noise first.
    clamp              whether to clamp from below at 0, or at the smallest feature if negative.
    accept             the class probability from which a generated feature is accepted.
    """

    step: float
    iterations: int
    noise: bool
    clamp: bool
    accept: float

    def __call__(self, gen_model: Chain, cut: str, h: Tensor, y: Tensor, key: Key) -> Generated:
        least, most = h.detach().aminmax()
        infinite = torch.full_like(most, math.inf)
        low, high = (least.clamp(max=0), most) if self.clamp else (-infinite, infinite)
        if self.noise:
            draws = uniform_like(h, key.fold("noise"))
            # a middle in float64, rounded once
            centre = ((in_float64(most) + in_float64(least)) / 2).to(h)
            h = perturbed(h, draws, centre, 1.0).clamp(low, high)

        def target_loss(h: Tensor) -> Tensor:
            return F.cross_entropy(gen_model.run(h, after=cut), y)

        h = normalised_descent(h, target_loss, self.step, self.iterations, low, infinite)
        return h, confidence(gen_model.run(h, after=cut), y) >= self.accept


def features_with_frozen_norms(
    step: Step, cut: str, pairs: Pairs, gen_model: Chain, generate: Callable[[Tensor], Generated]
) -> tuple[Tensor, Tensor]:
    """The features of the batch with the accepted ones put in, and the original features.

    u, its batch norms included, does not change, so a single pass through it serves both.
    """
    original = gen_model.run(step.x, until=cut)
    generated, accepted = generate(original[pairs.sources])
    return replaced(original, pairs.targets, generated, accepted), original


def features_with_training_norms(
    step: Step, cut: str, pairs: Pairs, gen_model: Chain, generate: Callable[[Tensor], Generated]
) -> tuple[Tensor, Tensor]:
    """The same with the batch norms of u in training mode.

    The passes that update the running statistics have the order and number of the authors' code.
    """
    generated, accepted = generate(gen_model.run(step.x[pairs.sources], until=cut))
    targets, sources = pairs.targets, pairs.sources
    with torch.no_grad():
        with_sources = step.model.taps(replaced(step.x, targets, step.x[sources], accepted))[cut]
        step.model.run(step.x, until=cut)
        mixed = replaced(with_sources, targets, generated, accepted)
        return mixed, step.model.run(step.x, until=cut)


def afa_loss(
    classify: Callable[[Tensor], Tensor], generated: Labelled, original: Labelled, lam: float
) -> Tensor:
    """L_AFA = lam L_gen + (1 - lam) L_ori, eq. (6) of Lu et al."""
    gen, ori = (F.cross_entropy(classify(h), y) for h, y in (generated, original))
    return lam * gen + (1 - lam) * ori
