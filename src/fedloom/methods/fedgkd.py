"""FedGKD: the mean of the last few global models is the teacher.

    L = CE(z, y) + gamma T^2 KL(softmax(t/T) || softmax(z/T)),   t: logits of the mean of w^t, w^{t-1}, ..., w^{t-history+1}

gamma >= 0     0 is FedAvg. temperature > 0: T.
history >= 1   global models in the teacher, the received one among them; 1 teaches with the received model alone.
State     server: the last `history` models; their mean is sent along with the weights (twice the bytes down; not with history 1).
Uploads   model.   Needs  any model.
Yao et al., 2021, eq. (4). Departures: none. There is no teacher in the first round, as in the authors' code, whose buffer holds 5;
how long it was in FedMLB's comparison (gamma 0.2) is not printed. The teacher normalises by the batch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from torch import Tensor

from fedloom.core.method import Method, Phase
from fedloom.core.params import Params, clone
from fedloom.core.server import Cohort, Memory, Stage, apply_mean, mean, weighted_sum
from fedloom.core.spec import Param
from fedloom.core.step import Step
from fedloom.losses.distillation import kl, taught

PAPER = "Yao et al., 2021"
LINK = "https://arxiv.org/abs/2107.00051"


def fedgkd(
    gamma: Annotated[float, Param("weight of the divergence; 0 is FedAvg", low=0)] = 0.2,
    history: Annotated[
        int, Param("global models in the teacher, the received one among them", low=1)
    ] = 5,
    temperature: Annotated[float, Param("temperature of the divergence", above=0)] = 1.0,
) -> Method:
    slot = "fedgkd" if history > 1 else "received"

    def teach(step: Step) -> Tensor:
        if step.job.round == 0:
            return step.logits.new_zeros(())
        return gamma * temperature**2 * kl(taught(step, slot), step.logits, temperature)

    if not gamma:
        return Method("fedgkd")
    ensemble = (_remembering(history),) if history > 1 else ()
    return Method("fedgkd", (Phase(terms=(teach,)),), server=(mean(), apply_mean(), *ensemble))


def _remembering(history: int) -> Stage:
    """Keeps the last models, the newest first, and sends their mean along."""

    def init(weights: Params) -> Memory:
        return {"0": clone(weights)}

    def step(memory: Memory, c: Cohort) -> tuple[Memory, Cohort]:
        newest = clone({n: t for n, t in c.params.items() if n in c.roles.weights})
        models = [newest, *(memory[str(i)] for i in range(len(memory)))][:history]
        teacher = weighted_sum(models, [1 / len(models)] * len(models))
        return {str(i): m for i, m in enumerate(models)}, replace(
            c, shared={**c.shared, "fedgkd": teacher}
        )

    return Stage("apply", f"fedgkd(history={history})", init, step)
