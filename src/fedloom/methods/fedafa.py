"""FedAFA: at last each client trains the later blocks on balanced draws and on rare-class features made of frequent-class ones.

    h <- h - step g / ||g||,   g = d CE(f(h; v), y_t) / dh,   h from u(x_s) on, taken if f(h; v) gives y_t at least p_d
    w_k = (u^T, v_k),   min over v_k of  lam L_gen + (1 - lam) L_ori

u are the blocks up to `at`, v those behind. L_ori is the cross-entropy of a class-balanced batch, L_gen that of the same batch with
generated features at some places; targets, sources and their weights are told in losses/adversarial.py.
features   whose u and v generate: "global" the received model, "local" the client's as it stands (FedAFA_Loc).
weights    of a source s for a target t: "paper" max(n_s - n_t, 0) / n_k; "authors" 1 - max(n_s - n_t, 0) / n_max, which
           is the reverse: their code avoids the frequent classes that the paper asks for.
at         "" is the last block but two, or the first of two: in a ResNet of three stages the second of them, the authors' tap.
0 <= lam <= 1   0 is ROS that trains the later blocks only; in front of the last block that is cRT.   accept: p_d.
step, iterations, noise, clamp   of the generation, as in the authors' code; the paper's is step=1, noise=false, clamp=false.
norms      "running" leaves the batch norms of u alone, as the paper's u is the global one; in the authors' code ("batch") they are
           in training, and move with the originals twice and with the sources in the place of what they became.
epochs >= 0   on the final model; 0 is FedAvg.   lr, batch, momentum (Nesterov's) and decay belong to it.
State     none.   Uploads  model.   Needs  a model with a block in front of the last.
Lu et al., ICASSP 2023, eqs. (1) to (6). Sources are samples of the batch, as in the authors' code. Departures: a batch without a
target is a plain balanced one, where their code draws until it has one, without end for a client of one class. Features
are held above 0 as theirs, or above the smallest where there are negative ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal

import torch.nn.functional as F
from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.method import Method, Phase, blocks_needed, inner_block
from fedloom.core.select import blocks
from fedloom.core.spec import Param
from fedloom.core.step import Step
from fedloom.losses.adversarial import Weigh, itself, original, paired, surplus
from fedloom.losses.feature_generation import Generation, afa, drifting, held
from fedloom.methods.finetune import Batch, Decay, Epochs, Momentum, Rate, tuning
from fedloom.methods.ros import balanced

PAPER = "Lu et al., ICASSP 2023"
LINK = "https://arxiv.org/abs/2303.15168"
WEIGHTS: Mapping[str, Weigh] = MappingProxyType(
    {"paper": lambda n: surplus(n) / n.sum(), "authors": lambda n: 1 - surplus(n) / n.max()}
)


def tap(chain: Chain, at: str) -> str:
    """The block whose outputs are features."""
    return at or chain.names[max(0, len(chain.names) - 3)]


def fedafa(
    features: Annotated[
        Literal["global", "local"],
        Param("whose model generates: the received, or the client's own"),
    ] = "global",
    weights: Annotated[
        Literal["paper", "authors"],
        Param("of sources: frequent classes first, or last as in the code"),
    ] = "paper",
    at: Annotated[
        str, Param("block whose outputs are features; '' is the last but two, or the first of two")
    ] = "",
    lam: Annotated[
        float, Param("share of the loss with generated features; 0 is none", low=0, high=1)
    ] = 0.6,
    accept: Annotated[
        float, Param("probability from which on a generated feature is taken", low=0, high=1)
    ] = 0.5,
    step: Annotated[float, Param("length of a step of the generation", above=0)] = 0.5,
    iterations: Annotated[int, Param("steps of the generation", low=0)] = 10,
    noise: Annotated[bool, Param("whether the generation starts with noise")] = True,
    clamp: Annotated[bool, Param("whether features are held above 0")] = True,
    norms: Annotated[
        Literal["running", "batch"], Param("batch norms in front: left alone, or in training")
    ] = "running",
    epochs: Epochs = 1,
    lr: Rate = 0.005,
    batch: Batch = 64,
    momentum: Momentum = 0.9,
    decay: Decay = 5e-4,
) -> Method:
    generation, both = (
        Generation(step, iterations, noise, clamp, accept),
        held if norms == "running" else drifting,
    )

    def trained(chain: Chain) -> frozenset[str]:
        later = blocks(after=tap(chain, at))(chain)
        return later if norms == "running" else later | {n for n, _ in chain.named_buffers()}

    def loss(now: Step) -> Tensor:
        cut, pairs = tap(now.model, at), paired(now, WEIGHTS[weights])
        if not lam or not len(pairs.places):
            h = (original(now) if norms == "running" else now.model).run(now.x, until=cut)
            return F.cross_entropy(now.model.run(h, after=cut), now.y)
        maker, y = itself(now) if features == "local" else original(now), now.y[pairs.places]
        mixed, own = both(now, cut, pairs, maker, lambda h: generation(maker, cut, h, y, now.key))
        return afa(lambda h: now.model.run(h, after=cut), (mixed, now.y), (own, now.y), lam)

    phase = Phase(
        loss, trains=trained, order=balanced, solver=tuning(epochs, lr, batch, momentum, decay)
    )
    return Method(
        "fedafa",
        finale=(phase,) if epochs else (),
        needs=(inner_block(at) if at else blocks_needed(2),),
    )
