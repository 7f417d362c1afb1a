"""FedRep: shares the representation; clients train a personal head first, then the representation.

    client   h_k <- h_k - eta grad_h F_k(b, h_k)  for `passes` passes,
             then  b_k <- b - eta grad_b F_k(b, h_k)  for one
    server   b^{t+1} = sum_k p_k b_k

A pass is the run's local training of train.epochs or train.steps.

passes   >= 1, passes over the head before the one over the representation.
blocks   >= 1, how many of the last blocks form the head h.

State: each client's head. Uploads: the model without the head.
Needs: a model with a block before the head.
Reference: Collins et al., ICML 2021, algorithm 1. Departures: while the head is trained, the batch
norms of the representation use their running statistics and do not update them, whereas the
authors' code does; momentum is reset at every pass; clients are weighted by samples.
Combines with other methods' server stages and loss terms, which apply in every pass, but not with
methods that need a single descent per round, such as SCAFFOLD.
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
        int, Param("training passes over the head before the one over the representation", low=1)
    ] = 1,
    blocks: Annotated[int, Param("how many of the last blocks are personal", low=1)] = 1,
) -> Method:
    personal = head(blocks)
    head_phases = tuple(Phase(trains=personal) for _ in range(passes))
    phases = (*head_phases, Phase(trains=representation(blocks)))
    return Method("fedrep", phases, private=personal, needs=(blocks_needed(blocks + 1),))
