"""SCAFFOLD: control variates take each client's drift out of its gradient.

    client   w <- w - eta (g(w) - c_i + c),   then  c_i' = c_i - c + (w^t - w_i) / (K eta),   sends c_i' - c_i
    server   w <- w + server_lr mean_S (w_i - w^t),   c <- c + |S|/N mean_S (c_i' - c_i)

server_lr >= 0   server step; 1 is the mean itself.
State     client: c_i (0 at first); server: c, sent along with the weights (twice the bytes each way).
Uploads   model, control.   Needs  any model.
Karimireddy et al., ICML 2020, algorithm 1, option II. Departures: the correction is part of the loss and so inside a gradient clip.
With momentum, of which the paper has none, K eta is the sum of what every gradient weighs in w^t - w_i, so that c_i stays a mean of
gradients: K eta itself would make it up to 1/(1 - momentum) times too large. It is counted from rest, also where train.reset=false
keeps momentum over rounds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fedloom.core.job import Job
from fedloom.core.method import Extra, Method, Outcome, Phase
from fedloom.core.params import Params, add, subtract
from fedloom.core.server import Cohort, Memory, Stage, apply_mean, mean, no_memory
from fedloom.core.spec import Param
from fedloom.losses.terms import inner
from fedloom.stages.optimise import scale

PAPER = "Karimireddy et al., ICML 2020"
LINK = "https://arxiv.org/abs/1910.06378"


def scaffold(
    server_lr: Annotated[float, Param("server step; 1 is the mean itself", low=0)] = 1.0,
) -> Method:
    def correction(job: Job) -> Params:
        return subtract(job.from_server("control"), job.memory("control"))

    def settle(outcome: Outcome) -> Extra:
        job, lr_sum = outcome.job, outcome.descent("model").lr_sum
        pace = add(job.from_server("control"), outcome.delta, scale=1 / lr_sum if lr_sum else 0.0)
        change = {n: -t for n, t in pace.items()}
        return Extra(
            uploads={"control": change}, memories={"control": add(job.memory("control"), change)}
        )

    def listen(memory: Memory, c: Cohort) -> tuple[Memory, Cohort]:
        share = len(c.replies) / c.population
        control = c.shared.get("control", {n: 0 * t for n, t in c.mean["control"].items()})
        return memory, replace(
            c, shared={**c.shared, "control": add(control, c.mean["control"], scale=share)}
        )

    step = () if server_lr == 1.0 else (scale(server_lr),)
    server = (
        mean(by="clients"),
        mean(of="control", by="clients"),
        *step,
        Stage("apply", "scaffold", no_memory, listen),
        apply_mean(),
    )
    return Method(
        "scaffold", (Phase(terms=(inner(correction),)),), (settle,), server, sends=("control",)
    )
