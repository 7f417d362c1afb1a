"""Local training: every client trains on its own data only, without communication.

    w_k <- w_k - eta grad F_k(w_k),   from common initial weights, in rounds in which it is sampled

State: each client's whole model. Uploads: nothing. Needs: any model. Alias: local.
The lower bound in comparisons of personalised methods, as in Table 1 of FedAFA (Lu et al., ICASSP
2023). The paper does not give its training budget; here a client trains in as many rounds as it
would under FedAvg. The server's model, and that of a client never sampled, remain the initial one;
look at the clients' own scores, "personal" in the results.
"""

from __future__ import annotations

from fedloom.core.method import Method
from fedloom.core.select import everything

PAPER = "Lu et al., ICASSP 2023, as a baseline"
LINK = "https://arxiv.org/abs/2303.15168"
ALIASES = ("local",)


def local_training() -> Method:
    return Method("local-training", private=everything)
