"""FedRep: as FedPer, but the head is trained first, on the received representation, and then the representation under that head.

    client   h_k <- h_k - eta grad_h F_k(b, h_k),  several passes;   then  b_k <- b - eta grad_b F_k(b, h_k),  one
    server   b^{t+1} = sum_k p_k b_k

A pass is the run's local training, of train.epochs or train.steps.
passes >= 1   of the head before the one of the representation.   blocks >= 1   how many of the last blocks are the head.
State     client: its head.   Uploads  model, without the head.   Needs  a model with a block in front of the head.
Collins et al., ICML 2021, algorithm 1. Departures: while the head is trained, batch norms of the representation use their running
statistics and leave them alone, where the authors' code moves them; momentum starts anew with every pass; clients are weighed by
samples. Joins servers and terms of others, which hold in every pass; not what looks back on one descent, as SCAFFOLD does.
"""

from __future__ import annotations

from typing import Annotated

from fedloom.core.method import Method, Phase, blocks_needed
from fedloom.core.select import head, representation
from fedloom.core.spec import Param

PAPER = "Collins et al., ICML 2021"
LINK = "https://arxiv.org/abs/2102.07078"


def fedrep(
    passes: Annotated[
        int, Param("times the head is trained before the representation is, once", low=1)
    ] = 1,
    blocks: Annotated[int, Param("how many of the last blocks each client keeps", low=1)] = 1,
) -> Method:
    own = head(blocks)
    phases = (*(Phase(trains=own) for _ in range(passes)), Phase(trains=representation(blocks)))
    return Method("fedrep", phases, private=own, needs=(blocks_needed(blocks + 1),))
