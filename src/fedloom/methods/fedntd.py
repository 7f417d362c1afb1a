"""FedNTD: distils the global model's not-true class probabilities into the local model.

    final   L = CE(z, y) + beta T^2 KL(softmax(t'/T) || softmax(z'/T))
    first   L = (1 - beta) CE(z, y) + beta KL(softmax(t'/T) || softmax(z'/T))

z' and t' are the logits of the local and of the received model (frozen) without the true class's.

beta          >= 0, weight of the not-true distillation; 0 is FedAvg.
temperature   > 0, T.
form          "final", as published (beta 1, T 1), or "first", as in the preprint, which FedMLB
              compares with (beta 0.3, T 1).

State: none. Uploads: the model. Needs: any model, at least two classes, and labels that are not
mixed.
Reference: Lee et al., NeurIPS 2022, eqs. (5) to (7). Departures: none; the authors' code has T = 3
where its settings do not specify it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from torch import Tensor

from fedloom.core.errors import UserError
from fedloom.core.learning_task import WITH_CLASSES
from fedloom.core.method import Method, Phase
from fedloom.core.spec import Param
from fedloom.core.step import Step
from fedloom.losses.distillation import kl, not_true_logits, teacher_logits

PAPER = "Lee et al., NeurIPS 2022"
LINK = "https://arxiv.org/abs/2106.03097"


def fedntd(
    beta: Annotated[
        float, Param("weight of the not-true distillation loss; 0 is FedAvg", low=0)
    ] = 1.0,
    temperature: Annotated[float, Param("distillation temperature", above=0)] = 1.0,
    form: Annotated[
        Literal["final", "first"],
        Param("the loss as published, or that of the preprint, which FedMLB compares with"),
    ] = "final",
) -> Method:
    if form == "first" and beta > 1:
        raise UserError(
            f"fedntd: beta={beta:g} must be at most 1 with form='first', where it is a share of "
            "the loss; lower it"
        )

    def distil(step: Step) -> Tensor:
        if step.y.is_floating_point():
            raise UserError(
                "fedntd needs the true class of each sample, but these labels are mixed; "
                "do not combine it with a mixup method"
            )
        teacher = not_true_logits(teacher_logits(step), step.y)
        student = not_true_logits(step.logits, step.y)
        divergence = kl(teacher, student, temperature, step.counted)
        if form == "final":
            return beta * temperature**2 * divergence
        return beta * (divergence - step.loss)

    return Method("fedntd", (Phase(terms=(distil,) if beta else ()),), tasks=WITH_CLASSES)
