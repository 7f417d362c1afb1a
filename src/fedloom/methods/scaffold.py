"""SCAFFOLD: corrects client drift with control variates.

    client   w <- w - eta (g(w) - c_i + c),   then  c_i' = c_i - c + (w^t - w_i) / (K eta)
             uploads c_i' - c_i
    server   w <- w + server_lr mean_S (w_i - w^t),   c <- c + |S|/N mean_S (c_i' - c_i)

server_lr   >= 0, server learning rate; 1 is plain averaging.

State: c_i at each client (starts at 0); c at the server, broadcast with the weights (so twice the
bytes in each direction).
Uploads: the model and the change of c_i. Needs: any model.
Reference: Karimireddy et al., ICML 2020, algorithm 1, option II. Departures: the correction is part
of the loss and thus subject to gradient clipping. The paper has no momentum. With it, K eta is
replaced by the sum of the weights with which the gradients enter w^t - w_i, so that c_i remains a
mean of gradients; K eta itself would make it up to 1/(1 - momentum) times too large. That sum
assumes that momentum starts at 0, even where train.reset=false keeps momentum between rounds.
With Adam w^t - w_i is no sum of gradients, and the method is refused. With train.sam, c_i is a mean
of the gradients that SAM has used.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fedloom.core.job import Job
from fedloom.core.method import Extra, Method, Outcome, Phase
from fedloom.core.params import Params, add, subtract
from fedloom.core.server import Cohort, Memory, Stage, apply_mean, mean, no_memory
from fedloom.core.spec import Param
from fedloom.losses.terms import linear_term
from fedloom.stages.optimise import scale

PAPER = "Karimireddy et al., ICML 2020"
LINK = "https://arxiv.org/abs/1910.06378"


def scaffold(
    server_lr: Annotated[float, Param("server learning rate; 1 is plain averaging", low=0)] = 1.0,
) -> Method:
    def correction(job: Job) -> Params:
        return subtract(job.from_server("control"), job.memory("control"))

    def update_control(outcome: Outcome) -> Extra:
        job, lr_sum = outcome.job, outcome.descent("model").lr_sum
        # c + (w_i - w^t) / (K eta), the negative of the change of c_i
        negative = add(
            job.from_server("control"), outcome.delta, scale=1 / lr_sum if lr_sum else 0.0
        )
        change = {n: -t for n, t in negative.items()}
        return Extra(
            uploads={"control": change}, memories={"control": add(job.memory("control"), change)}
        )

    def update_server_control(memory: Memory, c: Cohort) -> tuple[Memory, Cohort]:
        share = len(c.replies) / c.population
        control = c.shared.get("control", {n: 0 * t for n, t in c.mean["control"].items()})
        updated = add(control, c.mean["control"], scale=share)
        return memory, replace(c, shared={**c.shared, "control": updated})

    step = () if server_lr == 1.0 else (scale(server_lr),)
    server = (
        mean(by="clients"),
        mean(of="control", by="clients"),
        *step,
        Stage("apply", "scaffold", no_memory, update_server_control),
        apply_mean(),
    )
    phase = Phase(terms=(linear_term(correction),))
    return Method(
        "scaffold", (phase,), (update_control,), server, sends=("control",), uses_lr_sum=True
    )
