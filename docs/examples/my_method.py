from typing import Annotated

from torch import Tensor

from fedloom.core.method import Method, Phase
from fedloom.core.spec import Param
from fedloom.core.step import Step


def modest(
    beta: Annotated[float, Param("weight of the entropy; 0 is FedAvg", low=0)] = 0.1,
) -> Method:
    """Modest: local training rewarded for leaving some doubt, the confidence penalty of Pereyra et al., 2017.

    min_w  F_i(w) - beta H(p_w(x)),   H the mean entropy of the predictions
    """

    def certainty(step: Step) -> Tensor:
        logs = step.logits.log_softmax(dim=1)
        return beta * (logs.exp() * logs).sum(dim=1).mean()

    return Method("modest", (Phase(terms=(certainty,)),))
