"""Fine-tuning: after the last round, each client fine-tunes the global model on its own data.

    w_k = w^T - eta grad F_k(w^T),   for some epochs; nothing is uploaded

epochs   >= 0, epochs of fine-tuning; 0 is FedAvg.
lr, batch, momentum (Nesterov) and decay are the method's own: by then, the run's learning rate may
have been decayed to almost nothing.

State: none. Uploads: the model. Needs: any model. Alias: fedavg-ft, which is what it is on its own.
It combines: FedProx-FT is `fedprox+finetune`, whose fine-tuning has no proximal term.
Reference: Wang et al., 2019; FedAvg-FT in FedAFA (Lu et al., ICASSP 2023), section 2.1, whose
settings are the defaults. Departures: none.
"""

from __future__ import annotations

from typing import Annotated

from fedloom.core.method import Method, Phase
from fedloom.core.optimisers import SGDRule
from fedloom.core.solver import Sgd
from fedloom.core.spec import Param

PAPER = "Wang et al., 2019"
LINK = "https://arxiv.org/abs/1910.10252"
ALIASES = ("fedavg-ft",)

Epochs = Annotated[int, Param("epochs on the final model; 0 is FedAvg", low=0)]
Rate = Annotated[float, Param("learning rate on the final model", above=0)]
Batch = Annotated[int, Param("samples per mini-batch", low=1)]
Momentum = Annotated[float, Param("Nesterov momentum; 0 is none", low=0, below=1)]
Decay = Annotated[float, Param("weight decay; 0 is none", low=0)]


def finetuning_sgd(epochs: int, lr: float, batch: int, momentum: float, decay: float) -> Sgd:
    """The solver of a finale, with its own optimiser settings instead of the run's."""
    rule = SGDRule(momentum, nesterov=momentum > 0, weight_decay=decay)
    return Sgd(lr=lr, batch=batch, epochs=epochs, rule=rule)


def finetune(
    epochs: Epochs = 1,
    lr: Rate = 0.005,
    batch: Batch = 64,
    momentum: Momentum = 0.9,
    decay: Decay = 5e-4,
) -> Method:
    phase = Phase(solver=finetuning_sgd(epochs, lr, batch, momentum, decay))
    return Method("finetune", finale=(phase,) if epochs else ())
