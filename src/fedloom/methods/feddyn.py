"""FedDyn: a dynamic regulariser aligns the optima of the clients with that of the global loss.

    client   min_w F_i(w) - <g_i, w> + alpha/2 ||w - w^t||^2,   then  g_i <- g_i - alpha (w_i - w^t)
    server   h <- h - alpha/N sum_{i in S} (w_i - w^t),   w^{t+1} = mean_S w_i - h / alpha

N counts all clients, not only the sampled ones.

alpha   > 0, weight of the regulariser.

State: g_i at each client (starts at 0; unchanged while the client is not sampled), h at the server.
Uploads: the model. Needs: any model.
Reference: Acar et al., ICLR 2021, algorithm 1. Departures: the quadratic term is part of the loss
and thus subject to gradient clipping; the authors' code puts alpha/2 ||w||^2 into weight decay,
which is not clipped. Without clipping the two are the same. The model sent and evaluated is
w^{t+1}, including -h/alpha; the authors' code also reports the mean of the sampled clients.
The updates of g_i and h rely on a minimum of the client's objective, not on the way to it, so any
train.optimiser will do; only AdamW's weight decay is not a part of that objective.
"""

from __future__ import annotations

from typing import Annotated

from fedloom.core.job import Job
from fedloom.core.method import Extra, Method, Outcome, Phase
from fedloom.core.params import Params, add, zeros
from fedloom.core.server import Cohort, Memory, Stage, apply_mean, mean
from fedloom.core.spec import Param
from fedloom.losses.terms import linear_term, proximal_term

PAPER = "Acar et al., ICLR 2021"
LINK = "https://arxiv.org/abs/2111.04263"


def feddyn(
    alpha: Annotated[
        float, Param("weight of the regulariser; smaller lets clients move further", above=0)
    ] = 0.1,
) -> Method:
    def negative_gradient(job: Job) -> Params:
        return {n: -g for n, g in job.memory("feddyn").items()}

    def update_gradient(outcome: Outcome) -> Extra:
        gradient = add(outcome.job.memory("feddyn"), outcome.delta, scale=-alpha)
        return Extra(memories={"feddyn": gradient})

    def correct(memory: Memory, c: Cohort) -> tuple[Memory, Cohort]:
        share = len(c.replies) / c.population
        h = add(memory["h"], c.step, scale=-alpha * share)
        return {"h": h}, c.with_mean("model", {n: d - h[n] / alpha for n, d in c.step.items()})

    def init(weights: Params) -> Memory:
        return {"h": zeros(weights)}

    stage = Stage("optimise", f"feddyn(alpha={alpha:g})", init, correct)
    server = (mean(by="clients"), stage, apply_mean())
    terms = (linear_term(negative_gradient), proximal_term(alpha))
    return Method("feddyn", (Phase(terms=terms),), (update_gradient,), server)
