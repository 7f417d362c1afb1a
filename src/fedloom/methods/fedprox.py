"""FedProx: adds a proximal term (mu/2)||w - w^t||^2 to each client's loss.

    min_w  F_i(w) + mu/2 ||w - w^t||^2,   w^t: the received global model

mu   >= 0, weight of the proximal term; 0 is FedAvg.

State: none. Uploads: the model. Needs: any model.
Reference: Li et al., MLSys 2020, eq. (2). Departures: none. The term covers all trained weights,
including a normalisation layer's scale and shift, but no buffers.
"""

from __future__ import annotations

from typing import Annotated

from fedloom.core.method import Method, Phase
from fedloom.core.spec import Param
from fedloom.losses.terms import proximal_term

PAPER = "Li et al., MLSys 2020"
LINK = "https://arxiv.org/abs/1812.06127"


def fedprox(
    mu: Annotated[float, Param("weight of the proximal term; 0 is FedAvg", low=0)] = 0.01,
) -> Method:
    return Method("fedprox", (Phase(terms=(proximal_term(mu),)),))
