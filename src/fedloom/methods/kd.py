"""KD: FedAvg with the received model as the teacher of plain knowledge distillation.

    L = (1 - weight) CE(z, y) + weight KL(softmax(t/T) || softmax(z/T))

t are the logits of the received model, frozen.
0 <= weight <= 1   how much is learnt from the teacher; 0 is FedAvg. temperature > 0: T, without a factor T^2.
State     none.   Uploads  model.   Needs  any model.
Hinton et al., 2015; a baseline of FedMLB (Kim et al., ICML 2022), whose weight is not printed: 0.2 here is that of its public
re-implementation. Departures: none.
"""

from __future__ import annotations

from typing import Annotated

from torch import Tensor

from fedloom.core.method import Method, Phase
from fedloom.core.spec import Param
from fedloom.core.step import Step
from fedloom.losses.distillation import kl, taught

PAPER = "Hinton et al., 2015"
LINK = "https://arxiv.org/abs/1503.02531"


def kd(
    weight: Annotated[
        float, Param("share of the teacher in the loss; 0 is FedAvg", low=0, high=1)
    ] = 0.2,
    temperature: Annotated[float, Param("temperature of the divergence", above=0)] = 1.0,
) -> Method:
    def teach(step: Step) -> Tensor:
        return weight * (kl(taught(step), step.logits, temperature) - step.ce)

    return Method("kd", (Phase(terms=(teach,) if weight else ()),))
