"""LG-FedAvg: each client keeps its own representation; only the head is shared.

    client   (l_k, g) <- (l_k, g) - eta grad F_k(l_k, g)
    server   g^{t+1} = sum_k p_k g_k

l_k are the blocks in front, norms and their statistics included; g are the last ones.
blocks >= 1   how many of the last blocks are shared.
State     client: its representation.   Uploads  model, of the last blocks only.   Needs  a model with a block in front of them.
Liang et al., 2020, algorithm 1. Departures: clients are weighed by samples, where the authors' code has equal weights
(`lgfedavg+fedavg(weights=clients)`); all start from the common first weights, where it starts from a model that FedAvg has trained;
and the last model counts, where it reports each client's best on the test data. fedper is its mirror image.
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
