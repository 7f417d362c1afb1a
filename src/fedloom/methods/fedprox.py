"""FedProx: local training held near the received model by a quadratic spring.

    min_w  F_i(w) + mu/2 ||w - w^t||^2

mu >= 0   stiffness; 0 is FedAvg.
State     none.   Uploads  model.   Needs  any model.
Li et al., MLSys 2020, eq. (2). Departures: none; the term covers trained weights (a norm's scale and shift included), not buffers.
"""

from __future__ import annotations

from typing import Annotated

from fedloom.core.method import Method, Phase
from fedloom.core.spec import Param
from fedloom.losses.terms import prox

PAPER = "Li et al., MLSys 2020"
LINK = "https://arxiv.org/abs/1812.06127"


def fedprox(
    mu: Annotated[float, Param("stiffness of the spring; 0 is FedAvg", low=0)] = 0.01,
) -> Method:
    return Method("fedprox", (Phase(terms=(prox(mu),)),))
