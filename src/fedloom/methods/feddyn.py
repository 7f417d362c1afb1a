"""FedDyn: each client's objective is tilted so that all clients agree with the global stationary point.

    client   min_w F_i(w) - <g_i, w> + alpha/2 ||w - w^t||^2,   then  g_i <- g_i - alpha (w_i - w^t)
    server   h <- h - alpha/N sum_{i in S} (w_i - w^t),   w^{t+1} = mean_S w_i - h / alpha

alpha > 0   stiffness.
State     client: g_i (0 at first), kept by clients that were not asked; server: h. N counts all clients, not the sampled ones.
Uploads   model.   Needs  any model.
Acar et al., ICLR 2021, algorithm 1. Departures: the quadratic term is part of the loss and so inside the gradient clip, where the
authors' code puts alpha/2 ||w||^2 into weight decay, outside it; the same without a clip. What is sent and evaluated is w^{t+1}
with -h/alpha; the authors' code also reports the mean of the sampled clients.
"""

from __future__ import annotations

from typing import Annotated

from fedloom.core.job import Job
from fedloom.core.method import Extra, Method, Outcome, Phase
from fedloom.core.params import Params, add, zeros
from fedloom.core.server import Cohort, Memory, Stage, apply_mean, mean
from fedloom.core.spec import Param
from fedloom.losses.terms import inner, prox

PAPER = "Acar et al., ICLR 2021"
LINK = "https://arxiv.org/abs/2111.04263"


def feddyn(
    alpha: Annotated[float, Param("stiffness; smaller trusts the clients more", above=0)] = 0.1,
) -> Method:
    def tilt(job: Job) -> Params:
        return {n: -g for n, g in job.memory("feddyn").items()}

    def remember(outcome: Outcome) -> Extra:
        return Extra(
            memories={"feddyn": add(outcome.job.memory("feddyn"), outcome.delta, scale=-alpha)}
        )

    def correct(memory: Memory, c: Cohort) -> tuple[Memory, Cohort]:
        share = len(c.replies) / c.population
        h = add(memory["h"], c.step, scale=-alpha * share)
        return {"h": h}, c.with_mean("model", {n: d - h[n] / alpha for n, d in c.step.items()})

    stage = Stage(
        "optimise", f"feddyn(alpha={alpha:g})", lambda weights: {"h": zeros(weights)}, correct
    )
    server = (mean(by="clients"), stage, apply_mean())
    return Method("feddyn", (Phase(terms=(inner(tilt), prox(alpha))),), (remember,), server)
