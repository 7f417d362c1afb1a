"""FedAFA: fine-tunes later blocks with adversarially generated features of rare classes.

    h <- h - step g / ||g||,   g = d CE(f(h; v), y_t) / dh,   starting from h = u(x_s),
         accepted if f(h; v) gives y_t a probability of at least p_d
    w_k = (u^T, v_k),   min over v_k of  lam L_gen + (1 - lam) L_ori

This happens once, after the last round. u are the blocks up to `at`, v those after it. Features of
a rare class y_t are generated from those of a frequent class, u(x_s). L_ori is the cross-entropy of
a class-balanced batch, L_gen that of the same batch with generated features in some places;
losses/adversarial.py describes how targets and sources are drawn.

features   whose u and v generate: the received model's ("global") or the client's current one's
           ("local", FedAFA_Loc).
weights    weight of a source s for a target t: "paper" max(n_s - n_t, 0) / n_k; "authors"
           1 - max(n_s - n_t, 0) / n_max, which is the reverse: their code avoids the frequent
           classes that the paper asks for.
at         "" is the third block from the end, or the first of two: for a ResNet of three stages its
           second stage, where the authors take features.
lam        in [0, 1]; 0 is ROS training the later blocks only, and cRT if `at` is the block before
           the last.   accept: p_d.
step, iterations, noise, clamp   of the generation, as in the authors' code; the paper's are step=1,
           noise=false, clamp=false.
norms      "running" leaves the batch norms of u unchanged, since the paper's u is the global one.
           In the authors' code ("batch") they are in training mode: the original batch updates
           them twice, and the batch with sources in place of the generated samples once.
epochs     >= 0, epochs on the final model; 0 is FedAvg.
lr, batch, momentum (Nesterov) and decay are the method's own.

State: none. Uploads: the model. Needs: a model with a block before the last.
Reference: Lu et al., ICASSP 2023, eqs. (1) to (6). Sources are samples of the batch, as in the
authors' code. Departures: a batch without a target is used as it is, where their code redraws until
there is one, forever for a client with a single class. Features are clamped from below at 0, as
there, or at the smallest feature if some are negative.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal

import torch.nn.functional as F
from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.learning_task import CLASSIFICATION_ONLY
from fedloom.core.method import Method, Phase, blocks_needed, inner_block
from fedloom.core.select import blocks
from fedloom.core.spec import Param
from fedloom.core.step import Step
from fedloom.losses import feature_generation as generation
from fedloom.losses.adversarial import (
    SourceWeights,
    count_gaps,
    current_model,
    draw_pairs,
    received_model,
)
from fedloom.methods.finetune import Batch, Decay, Epochs, Momentum, Rate, finetuning_sgd
from fedloom.methods.ros import class_balanced

PAPER = "Lu et al., ICASSP 2023"
LINK = "https://arxiv.org/abs/2303.15168"
SOURCE_WEIGHTS: Mapping[str, SourceWeights] = MappingProxyType(
    {"paper": lambda n: count_gaps(n) / n.sum(), "authors": lambda n: 1 - count_gaps(n) / n.max()}
)


def feature_block(chain: Chain, at: str) -> str:
    """The block whose outputs are the features."""
    return at or chain.names[max(0, len(chain.names) - 3)]


def fedafa(
    features: Annotated[
        Literal["global", "local"],
        Param("whose model generates features: the received or the client's current one"),
    ] = "global",
    weights: Annotated[
        Literal["paper", "authors"],
        Param("source weights: favour frequent classes (paper) or avoid them (authors' code)"),
    ] = "paper",
    at: Annotated[
        str, Param("block whose outputs are features; '': third from the end, or first of two")
    ] = "",
    lam: Annotated[
        float, Param("share of the loss on generated features; 0 is none", low=0, high=1)
    ] = 0.6,
    accept: Annotated[
        float, Param("class probability from which a generated feature is accepted", low=0, high=1)
    ] = 0.5,
    step: Annotated[float, Param("step length of the generation", above=0)] = 0.5,
    iterations: Annotated[int, Param("steps of the generation", low=0)] = 10,
    noise: Annotated[bool, Param("whether the generation starts by adding noise")] = True,
    clamp: Annotated[bool, Param("whether generated features are clamped from below at 0")] = True,
    norms: Annotated[
        Literal["running", "batch"],
        Param("batch norms up to `at`: unchanged, or in training mode as in the authors' code"),
    ] = "running",
    epochs: Epochs = 1,
    lr: Rate = 0.005,
    batch: Batch = 64,
    momentum: Momentum = 0.9,
    decay: Decay = 5e-4,
) -> Method:
    generate = generation.Generation(step, iterations, noise, clamp, accept)
    frozen_norms = norms == "running"
    batch_features = (
        generation.features_with_frozen_norms
        if frozen_norms
        else generation.features_with_training_norms
    )

    def trained(chain: Chain) -> frozenset[str]:
        later = blocks(after=feature_block(chain, at))(chain)
        return later if frozen_norms else later | {n for n, _ in chain.named_buffers()}

    def loss(now: Step) -> Tensor:
        cut, pairs = feature_block(now.model, at), draw_pairs(now, SOURCE_WEIGHTS[weights])
        if not lam or not len(pairs.targets):
            h = (received_model(now) if frozen_norms else now.model).run(now.x, until=cut)
            return F.cross_entropy(now.model.run(h, after=cut), now.y)
        gen_model = current_model(now) if features == "local" else received_model(now)
        y_t = now.y[pairs.targets]

        def generated(h: Tensor) -> generation.Generated:
            return generate(gen_model, cut, h, y_t, now.key)

        def classify(h: Tensor) -> Tensor:
            return now.model.run(h, after=cut)

        mixed, original = batch_features(now, cut, pairs, gen_model, generated)
        return generation.afa_loss(classify, (mixed, now.y), (original, now.y), lam)

    solver = finetuning_sgd(epochs, lr, batch, momentum, decay)
    finale = (Phase(loss, trains=trained, order=class_balanced, solver=solver),) if epochs else ()
    need = inner_block(at) if at else blocks_needed(2, by_sample=True)
    return Method(
        "fedafa", finale=finale, needs=(need,), tasks=CLASSIFICATION_ONLY, fixed_loss=bool(finale)
    )
