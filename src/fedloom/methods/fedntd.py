"""FedNTD: what the received model says of the classes that are not the true one is not to be forgotten.

    final   L = CE(z, y) + beta T^2 KL(softmax(t'/T) || softmax(z'/T))
    first   L = (1 - beta) CE(z, y) + beta KL(softmax(t'/T) || softmax(z'/T))

z' and t' are the logits of the local and of the received model (frozen) without that of the true class.
beta >= 0   0 is FedAvg. temperature > 0: T.
form        "final", as published (beta 1, T 1), or "first", of the preprint, as FedMLB compares with it (beta 0.3, T 1).
State     none.   Uploads  model.   Needs  any model, two classes or more; labels that are not blended.
Lee et al., NeurIPS 2022, eqs. (5) to (7). Departures: none; the authors' code takes T 3 where its settings say nothing.
"""

from __future__ import annotations

from typing import Annotated, Literal

from torch import Tensor

from fedloom.core.errors import UserError
from fedloom.core.method import Method, Phase
from fedloom.core.spec import Param
from fedloom.core.step import Step
from fedloom.losses.distillation import but_true, kl, taught

PAPER = "Lee et al., NeurIPS 2022"
LINK = "https://arxiv.org/abs/2106.03097"


def fedntd(
    beta: Annotated[float, Param("weight of the divergence; 0 is FedAvg", low=0)] = 1.0,
    temperature: Annotated[float, Param("temperature of the divergence", above=0)] = 1.0,
    form: Annotated[
        Literal["final", "first"],
        Param("as published, or as in the preprint that FedMLB compares with"),
    ] = "final",
) -> Method:
    if form == "first" and beta > 1:
        raise UserError(
            f"fedntd: beta={beta:g} must be at most 1 in form 'first', where it is a share; lower it"
        )

    def keep(step: Step) -> Tensor:
        if step.y.dim() > 1:
            raise UserError(
                "fedntd needs the true class of a sample, and these labels are blended; do not join it with a mixup"
            )
        apart = kl(but_true(taught(step), step.y), but_true(step.logits, step.y), temperature)
        return beta * temperature**2 * apart if form == "final" else beta * (apart - step.ce)

    return Method("fedntd", (Phase(terms=(keep,) if beta else ()),))
