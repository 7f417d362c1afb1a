"""FedPer: shares the base layers; each client keeps its own personal head.

    client   (b, h_k) <- (b, h_k) - eta grad F_k(b, h_k)
    server   b^{t+1} = sum_k p_k b_k

blocks   >= 1, how many of the last blocks form the head h.

State: each client's head. Uploads: the model without the head.
Needs: a model with a block before the head.
Reference: Arivazhagan et al., 2019, algorithms 1 and 2. Departures: none; base and head are trained
jointly with the run's optimiser.
"""

from __future__ import annotations

from typing import Annotated

from fedloom.core.method import Method, blocks_needed
from fedloom.core.select import head
from fedloom.core.spec import Param

PAPER = "Arivazhagan et al., 2019"
LINK = "https://arxiv.org/abs/1912.00818"


def fedper(
    blocks: Annotated[int, Param("how many of the last blocks are personal", low=1)] = 1,
) -> Method:
    return Method("fedper", private=head(blocks), needs=(blocks_needed(blocks + 1),))
