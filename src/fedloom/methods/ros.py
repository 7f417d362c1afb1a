"""ROS: fine-tunes the global model with random oversampling, drawing all classes equally often.

    w_k = w^T - eta grad F_k  under sampling with  P(i) = 1 / (C_k n_{y_i})

C_k is the number of classes client k has, n_c its number of samples of class c. An epoch is n_k
draws with replacement.

epochs   >= 0, epochs on the final model; 0 is FedAvg.
lr, batch, momentum (Nesterov) and decay are the method's own.

State: none. Uploads: the model. Needs: any model. A client with a single class samples uniformly,
with replacement.
Reference: FedAvg+ROS in Table 1 of FedAFA (Lu et al., ICASSP 2023), all layers trained. The paper
says no more about it; the sampling is that of its authors' class-balanced loader.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedloom.core.job import Data
from fedloom.core.learning_task import CLASSIFICATION_ONLY
from fedloom.core.method import Method, Phase
from fedloom.methods.finetune import Batch, Decay, Epochs, Momentum, Rate, finetuning_sgd

PAPER = "Lu et al., ICASSP 2023, as a baseline"
LINK = "https://arxiv.org/abs/2303.15168"


def class_balanced(data: Data, generator: torch.Generator) -> Tensor:
    """Draw n_k positions with replacement, each of the client's classes equally likely."""
    labels = data.labels
    weights = 1 / torch.bincount(labels).double()
    return torch.multinomial(weights[labels], len(labels), replacement=True, generator=generator)


def ros(
    epochs: Epochs = 1,
    lr: Rate = 0.005,
    batch: Batch = 64,
    momentum: Momentum = 0.9,
    decay: Decay = 5e-4,
) -> Method:
    solver = finetuning_sgd(epochs, lr, batch, momentum, decay)
    return Method(
        "ros",
        finale=(Phase(order=class_balanced, solver=solver),) if epochs else (),
        tasks=CLASSIFICATION_ONLY,
    )
