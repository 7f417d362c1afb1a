"""cRT: when the rounds are over, each client trains the classifier again, on class-balanced draws, over the fixed representation.

    v_k = v - eta grad_v F_k(u^T, v) under the sampling  P(i) = 1 / (C_k n_{y_i}),   n_k draws with replacement an epoch

u are the blocks in front, with their statistics, as the rounds left them; v is the last block.
fresh     v starts from new random weights, as in the paper (10 epochs there), instead of the global model's.
epochs >= 0   on the final model; 0 is FedAvg.   lr, batch, momentum (Nesterov's) and decay belong to it.
State     none.   Uploads  model.   Needs  a model with a block in front of the last.
Kang et al., ICLR 2020, section 4; FedAvg+cRT in Table 1 of FedAFA (Lu et al., ICASSP 2023). Departures: a constant learning rate,
where the paper's falls with a cosine; the head is the last block, which in some models holds more than the linear layer. In the one
epoch of FedAFA's comparison a fresh classifier does not converge, so the global one is the default.
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import nn

from fedloom.core.chain import Chain
from fedloom.core.job import Job
from fedloom.core.key import Key
from fedloom.core.method import Method, Phase, blocks_needed
from fedloom.core.select import head
from fedloom.core.solver import DescentResult, Objective
from fedloom.core.spec import Param
from fedloom.methods.finetune import Batch, Decay, Epochs, Momentum, Rate, tuning
from fedloom.methods.ros import balanced

PAPER = "Kang et al., ICLR 2020"
LINK = "https://arxiv.org/abs/1910.09217"
CLASSIFIER = head()


def renewed(model: Chain, objective: Objective, job: Job, key: Key) -> DescentResult:
    """A solver that descends nothing: it gives the linear layers of the last block first weights, drawn as torch draws them."""
    draws = key.fold("fresh").generator()
    for layer in (m for m in model.block(model.names[-1]).modules() if isinstance(m, nn.Linear)):
        for p in layer.parameters():
            even = torch.rand(p.shape, generator=draws, dtype=p.dtype)
            p.data.copy_((2 * even - 1) * layer.in_features**-0.5)
    return DescentResult(steps=0, seen=0, loss=0.0, lr_sum=0.0)


def crt(
    fresh: Annotated[
        bool, Param("new random weights first, as in the paper, or the global classifier's")
    ] = False,
    epochs: Epochs = 1,
    lr: Rate = 0.005,
    batch: Batch = 64,
    momentum: Momentum = 0.9,
    decay: Decay = 5e-4,
) -> Method:
    renew = (Phase(trains=CLASSIFIER, solver=renewed),) if fresh else ()
    retrain = Phase(
        trains=CLASSIFIER, order=balanced, solver=tuning(epochs, lr, batch, momentum, decay)
    )
    return Method("crt", finale=(*renew, retrain) if epochs else (), needs=(blocks_needed(2),))
