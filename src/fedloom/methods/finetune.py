"""Fine-tuning: when the rounds are over, each client trains the global model on its own data, and keeps it.

    w_k = w^T - eta grad F_k(w^T),   for some epochs; nothing is sent

epochs >= 0   of fine-tuning; 0 is FedAvg.   lr, batch, momentum (Nesterov's) and decay belong to it: a run's own learning rate may
have been scheduled to nothing by then.
State     none.   Uploads  model.   Needs  any model.
Also called  fedavg-ft, as that is what it is by itself. It joins: FedProx-FT is `fedprox+finetune`, without the spring at last.
Wang et al., 2019; FedAvg-FT in FedAFA (Lu et al., ICASSP 2023), section 2.1, whose settings are the defaults. Departures: none.
"""

from __future__ import annotations

from typing import Annotated

from fedloom.core.method import Method, Phase
from fedloom.core.solver import Sgd, SGDRule
from fedloom.core.spec import Param

PAPER = "Wang et al., 2019"
LINK = "https://arxiv.org/abs/1910.10252"
ALIASES = ("fedavg-ft",)

Epochs = Annotated[int, Param("epochs on the final model; 0 is FedAvg", low=0)]
Rate = Annotated[float, Param("learning rate on the final model", above=0)]
Batch = Annotated[int, Param("samples in a mini-batch", low=1)]
Momentum = Annotated[float, Param("Nesterov's momentum; 0 is none", low=0, below=1)]
Decay = Annotated[float, Param("weight decay; 0 is none", low=0)]


def tuning(epochs: int, lr: float, batch: int, momentum: float, decay: float) -> Sgd:
    """The descent of a finale, with an optimiser of its own."""
    return Sgd(
        lr=lr,
        batch=batch,
        epochs=epochs,
        rule=SGDRule(momentum, nesterov=momentum > 0, weight_decay=decay),
    )


def finetune(
    epochs: Epochs = 1,
    lr: Rate = 0.005,
    batch: Batch = 64,
    momentum: Momentum = 0.9,
    decay: Decay = 5e-4,
) -> Method:
    phase = Phase(solver=tuning(epochs, lr, batch, momentum, decay))
    return Method("finetune", finale=(phase,) if epochs else ())
