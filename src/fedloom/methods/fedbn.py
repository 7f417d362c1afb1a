"""FedBN: normalisation layers stay at home, everything else is averaged.

    w^{t+1} = sum_k p_k w_k  without the norms;   client k computes with the shared weights and its own norms

State     client: scale, shift, statistics and counter of each of its norms.   Uploads  model, without these.
Needs     any model; one without norms makes it FedAvg.
Li et al., ICLR 2021, algorithm 1. Norms are found by the type of the layer, however deeply it is nested: batch norm, as in the
paper, and group, layer and instance norm alike. Departures: clients are weighed by samples, where the paper has equal weights;
`fedbn+fedavg(weights=clients)` is the paper's. A client that was never asked has the norms of the first model.
"""

from __future__ import annotations

from fedloom.core.method import Method
from fedloom.core.select import norms

PAPER = "Li et al., ICLR 2021"
LINK = "https://arxiv.org/abs/2102.07623"


def fedbn() -> Method:
    return Method("fedbn", private=norms)
