"""LG-FedAvg: each client learns its own local representation; only the head is global.

    client   (l_k, g) <- (l_k, g) - eta grad F_k(l_k, g)
    server   g^{t+1} = sum_k p_k g_k

l_k are the first blocks, with their normalisation layers and statistics; g are the last ones.

blocks   >= 1, how many of the last blocks are shared.

State: each client's representation. Uploads: the last blocks only.
Needs: a model with a block before them. FedPer is the reverse: it shares the representation.
Reference: Liang et al., 2020, algorithm 1. Departures: clients are weighted by samples; the
authors' code weights them equally (`lgfedavg+fedavg(weights=clients)`). All clients start from the
same initial weights, where the code starts from a model trained by FedAvg. The last model is
reported, where the code reports each client's best one on the test data.
"""

from __future__ import annotations

from typing import Annotated

from fedloom.core.method import Method, blocks_needed
from fedloom.core.select import representation
from fedloom.core.spec import Param

PAPER = "Liang et al., 2020"
LINK = "https://arxiv.org/abs/2001.01523"


def lgfedavg(
    blocks: Annotated[int, Param("how many of the last blocks are shared", low=1)] = 1,
) -> Method:
    return Method("lgfedavg", private=representation(blocks), needs=(blocks_needed(blocks + 1),))
