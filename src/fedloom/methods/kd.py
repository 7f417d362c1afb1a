"""KD: distils the received global model's predictions into the local model.

    L = (1 - weight) CE(z, y) + weight KL(softmax(t/T) || softmax(z/T))

z are the local logits, t those of the received model, frozen.

weight        in [0, 1], share of the distillation loss; 0 is FedAvg.
temperature   > 0, T; there is no factor T^2.

State: none. Uploads: the model. Needs: any model.
Reference: Hinton et al., 2015; a baseline of FedMLB (Kim et al., ICML 2022), which gives no weight
for it: 0.2 is that of its public re-implementation. Departures: none.
"""

from __future__ import annotations

from typing import Annotated

from torch import Tensor

from fedloom.core.learning_task import WITH_CLASSES
from fedloom.core.method import Method, Phase
from fedloom.core.spec import Param
from fedloom.core.step import Step
from fedloom.losses.distillation import kl, teacher_logits

PAPER = "Hinton et al., 2015"
LINK = "https://arxiv.org/abs/1503.02531"


def kd(
    weight: Annotated[
        float, Param("share of the distillation loss; 0 is FedAvg", low=0, high=1)
    ] = 0.2,
    temperature: Annotated[float, Param("distillation temperature", above=0)] = 1.0,
) -> Method:
    def distil(step: Step) -> Tensor:
        divergence = kl(teacher_logits(step), step.logits, temperature, step.counted)
        return weight * (divergence - step.loss)

    return Method("kd", (Phase(terms=(distil,) if weight else ()),), tasks=WITH_CLASSES)
