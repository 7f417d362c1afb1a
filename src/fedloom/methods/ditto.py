"""Ditto: beside FedAvg's model each client trains one of its own, held near the received one by a spring.

    global     FedAvg
    personal   min_v  F_k(v) + lam/2 ||v - w^t||^2,   v_k kept from round to round

lam >= 0   stiffness; 0 is training alone, and larger lets the global model speak. The global model is FedAvg's in any case.
State     client: v_k; the received weights the first time it is asked.   Uploads  model.   Needs  any model.
Li et al., ICML 2021, algorithm 1. Both descents are the run's, the personal one second, on batches of its own order.
Departures: clients are weighed by samples, where the authors' code takes the mean of the changes (`ditto+fedavg(weights=clients)`);
there both descents see the same mini-batches. The spring holds to the model as received, not as locally trained. A client that
was never asked has the global model.
"""

from __future__ import annotations

from typing import Annotated

from fedloom.core.method import Method, Phase
from fedloom.core.spec import Param
from fedloom.losses.terms import prox

PAPER = "Li et al., ICML 2021"
LINK = "https://arxiv.org/abs/2012.04221"


def ditto(
    lam: Annotated[
        float, Param("stiffness of the spring to the received model; 0 is none", low=0)
    ] = 1.0,
) -> Method:
    personal = Phase(terms=(prox(lam),) if lam else (), slot="personal")
    return Method("ditto", (Phase(), personal), evaluates="personal")
