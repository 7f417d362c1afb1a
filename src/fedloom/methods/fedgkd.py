"""FedGKD: distils the average of the last few global models into the local model.

    L = CE(z, y) + gamma T^2 KL(softmax(t/T) || softmax(z/T))

z are the local logits, t those of the mean of w^t, w^{t-1}, ..., w^{t-history+1}.

gamma         >= 0, weight of the distillation loss; 0 is FedAvg.
temperature   > 0, T.
history       >= 1, global models in the teacher, including the received one; with 1 the received
              model is the teacher.

State: the last `history` models at the server; their mean is broadcast with the weights (twice the
bytes down, except with history 1). Uploads: the model. Needs: any model.
Reference: Yao et al., 2021, eq. (4). Departures: none. The first round has no teacher, as in the
authors' code, whose buffer holds 5 models; the length in FedMLB's comparison (gamma 0.2) is not
given. The teacher normalises by the batch's statistics.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from torch import Tensor

from fedloom.core.learning_task import WITH_CLASSES
from fedloom.core.method import Method, Phase
from fedloom.core.params import Params, clone
from fedloom.core.server import Cohort, Memory, Stage, apply_mean, mean, weighted_sum
from fedloom.core.spec import Param
from fedloom.core.step import Step
from fedloom.losses.distillation import kl, teacher_logits

PAPER = "Yao et al., 2021"
LINK = "https://arxiv.org/abs/2107.00051"


def fedgkd(
    gamma: Annotated[float, Param("weight of the distillation loss; 0 is FedAvg", low=0)] = 0.2,
    history: Annotated[
        int, Param("global models averaged for the teacher, including the received one", low=1)
    ] = 5,
    temperature: Annotated[float, Param("distillation temperature", above=0)] = 1.0,
) -> Method:
    slot = "fedgkd" if history > 1 else "received"

    def distil(step: Step) -> Tensor:
        if step.job.round == 0:
            return step.logits.new_zeros(())
        teacher = teacher_logits(step, slot)
        return gamma * temperature**2 * kl(teacher, step.logits, temperature, step.counted)

    if not gamma:
        return Method("fedgkd", tasks=WITH_CLASSES)
    ensemble = (_broadcast_mean_of_last(history),) if history > 1 else ()
    return Method(
        "fedgkd",
        (Phase(terms=(distil,)),),
        server=(mean(), apply_mean(), *ensemble),
        tasks=WITH_CLASSES,
    )


def _broadcast_mean_of_last(history: int) -> Stage:
    """Keeps the last models, newest first, and broadcasts their mean."""

    def init(weights: Params) -> Memory:
        return {"0": clone(weights)}

    def step(memory: Memory, c: Cohort) -> tuple[Memory, Cohort]:
        newest = clone({n: t for n, t in c.params.items() if n in c.roles.weights})
        models = [newest, *(memory[str(i)] for i in range(len(memory)))][:history]
        teacher = weighted_sum(models, [1 / len(models)] * len(models))
        kept = {str(i): m for i, m in enumerate(models)}
        return kept, replace(c, shared={**c.shared, "fedgkd": teacher})

    return Stage("apply", f"fedgkd(history={history})", init, step)
