"""FedBN: keeps normalisation layers local to each client and averages all other parameters.

    w^{t+1} = sum_k p_k w_k  for all but the normalisation layers, of which client k uses its own

State: scale, shift, running statistics and counter of each client's normalisation layers.
Uploads: the model without these. Needs: any model; without normalisation layers it is FedAvg, and
the run says so.
Reference: Li et al., ICLR 2021, algorithm 1. Normalisation layers are found by layer type at any
depth: batch norm, as in the paper, and also group, layer, RMS and instance norm of torch.nn. A
library's own class, such as transformers' LlamaRMSNorm, is not one of these types: write
`fedloom.Method("NAME", private=fedloom.methods.of_type(LlamaRMSNorm))`. Departures: clients are
weighted by samples; the paper weights them equally (`fedbn+fedavg(weights=clients)`). A client that
was never sampled has the initial model's normalisation layers.
"""

from __future__ import annotations

from fedloom.core.method import Method
from fedloom.core.select import norms

PAPER = "Li et al., ICLR 2021"
LINK = "https://arxiv.org/abs/2102.07623"


def fedbn() -> Method:
    return Method("fedbn", private=norms)
