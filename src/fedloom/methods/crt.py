"""cRT: retrains each client's classifier with class-balanced sampling on the fixed representation.

    v_k = v - eta grad_v F_k(u^T, v)  under sampling with  P(i) = 1 / (C_k n_{y_i})

This happens once, after the last round. u are all blocks but the last, with their statistics, as
the rounds left them; v is the last block. An epoch is n_k draws with replacement (see ros).

fresh    whether v starts from new random weights, as in the paper (10 epochs there), instead of the
         global model's.
epochs   >= 0, epochs on the final model; 0 is FedAvg.
lr, batch, momentum (Nesterov) and decay are the method's own.

State: none. Uploads: the model. Needs: a model with a block before the last.
Reference: Kang et al., ICLR 2020, section 4; FedAvg+cRT in Table 1 of FedAFA (Lu et al., ICASSP
2023). Departures: a constant learning rate, where the paper has a cosine schedule; the classifier
is the last block, which in some models is more than the linear layer. In the single epoch of
FedAFA's comparison a fresh classifier does not converge, so the default is the global one.
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import nn

from fedloom.core.chain import Chain
from fedloom.core.job import Job
from fedloom.core.key import Key
from fedloom.core.learning_task import CLASSIFICATION_ONLY
from fedloom.core.method import Method, Phase, blocks_needed
from fedloom.core.select import head
from fedloom.core.solver import DescentResult, Objective
from fedloom.core.spec import Param
from fedloom.methods.finetune import Batch, Decay, Epochs, Momentum, Rate, finetuning_sgd
from fedloom.methods.ros import class_balanced

PAPER = "Kang et al., ICLR 2020"
LINK = "https://arxiv.org/abs/1910.09217"
CLASSIFIER = head()


def reinitialise_classifier(
    model: Chain, objective: Objective, job: Job, key: Key
) -> DescentResult:
    """A solver without steps: it reinitialises the last block's linear layers as PyTorch does."""
    generator = key.fold("fresh").generator()
    classifier = model.block(model.names[-1])
    for layer in (m for m in classifier.modules() if isinstance(m, nn.Linear)):
        for p in layer.parameters():
            uniform = torch.rand(p.shape, generator=generator, dtype=p.dtype)
            p.data.copy_((2 * uniform - 1) * layer.in_features**-0.5)
    return DescentResult(steps=0, seen=0, loss=0.0, lr_sum=0.0)


def crt(
    fresh: Annotated[
        bool, Param("start from a new random classifier, as in the paper, not the global one")
    ] = False,
    epochs: Epochs = 1,
    lr: Rate = 0.005,
    batch: Batch = 64,
    momentum: Momentum = 0.9,
    decay: Decay = 5e-4,
) -> Method:
    solver = finetuning_sgd(epochs, lr, batch, momentum, decay)
    reinitialise = (Phase(trains=CLASSIFIER, solver=reinitialise_classifier),) if fresh else ()
    retrain = Phase(trains=CLASSIFIER, order=class_balanced, solver=solver)
    finale = (*reinitialise, retrain) if epochs else ()
    return Method("crt", finale=finale, needs=(blocks_needed(2),), tasks=CLASSIFICATION_ONLY)
