"""Local training: every client trains alone, and nothing is sent.

    w_k <- w_k - eta grad F_k(w_k),   from the common first weights, in the rounds in which the client is asked

State     client: its whole model.   Uploads  nothing.   Needs  any model.   Also called  local.
The lower bound of every comparison of personalised methods, in Table 1 of FedAFA (Lu et al., ICASSP 2023). The paper gives no
budget: here a client trains in as many rounds as it would under FedAvg. The server's model stays as it began, and so does that of a
client which was never asked; what counts are the clients' own, under "personal" in the result.
"""

from __future__ import annotations

from fedloom.core.method import Method
from fedloom.core.select import everything

PAPER = "Lu et al., ICASSP 2023, as a baseline"
LINK = "https://arxiv.org/abs/2303.15168"
ALIASES = ("local",)


def local_training() -> Method:
    return Method("local-training", private=everything)
