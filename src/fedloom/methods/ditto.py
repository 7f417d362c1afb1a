"""Ditto: each client also trains a personal model with a proximal term towards the global one.

    global     FedAvg
    personal   min_v  F_k(v) + lam/2 ||v - w^t||^2,   v_k is kept between rounds

lam   >= 0, weight of the proximal term; 0 trains the personal model without the global one, and
      larger values keep it closer to it. The global model is FedAvg's whatever lam is.

State: v_k at each client, initialised with the received weights when it is first sampled.
Uploads: the model. Needs: any model.
Reference: Li et al., ICML 2021, algorithm 1. Both are trained with the run's optimiser, the global
model first, each on its own order of batches. Departures: clients are weighted by samples; the
authors' code averages updates with equal weights (`ditto+fedavg(weights=clients)`) and trains both
models on the same mini-batches. The proximal term refers to the model as received, not as locally
trained. A client that was never sampled is evaluated with the global model.
"""

from __future__ import annotations

from typing import Annotated

from fedloom.core.method import Method, Phase
from fedloom.core.spec import Param
from fedloom.losses.terms import proximal_term

PAPER = "Li et al., ICML 2021"
LINK = "https://arxiv.org/abs/2012.04221"


def ditto(
    lam: Annotated[
        float, Param("weight of the personal model's proximal term; 0 is none", low=0)
    ] = 1.0,
) -> Method:
    personal = Phase(terms=(proximal_term(lam),) if lam else (), slot="personal")
    return Method("ditto", (Phase(), personal), evaluates="personal")
