"""ROS: fine-tuning on randomly oversampled data, in which all classes of a client come equally often.

    w_k = w^T - eta grad of F_k under the sampling  P(i) = 1 / (C_k n_{y_i}),   n_k draws with replacement an epoch

C_k are the classes that client k has, n_c its samples of class c.
epochs >= 0   on the final model; 0 is FedAvg.   lr, batch, momentum (Nesterov's) and decay belong to it.
State     none.   Uploads  model.   Needs  any model.   A client of one class draws its samples evenly, with replacement.
FedAvg+ROS in Table 1 of FedAFA (Lu et al., ICASSP 2023), all layers trained. The paper says no more of it; the sampling is that of
its authors' class-balanced loader.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedloom.core.job import Data
from fedloom.core.method import Method, Phase
from fedloom.methods.finetune import Batch, Decay, Epochs, Momentum, Rate, tuning

PAPER = "Lu et al., ICASSP 2023, as a baseline"
LINK = "https://arxiv.org/abs/2303.15168"


def balanced(data: Data, generator: torch.Generator) -> Tensor:
    """As many draws with replacement as there are samples, each class of the client equally likely."""
    labels = data.labels
    rarity = 1 / torch.bincount(labels).double()
    return torch.multinomial(rarity[labels], len(labels), replacement=True, generator=generator)


def ros(
    epochs: Epochs = 1,
    lr: Rate = 0.005,
    batch: Batch = 64,
    momentum: Momentum = 0.9,
    decay: Decay = 5e-4,
) -> Method:
    phase = Phase(order=balanced, solver=tuning(epochs, lr, batch, momentum, decay))
    return Method("ros", finale=(phase,) if epochs else ())
