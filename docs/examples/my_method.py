from typing import Annotated

from torch import Tensor

import fedloom as fl


def modest(
    beta: Annotated[float, fl.Param("weight of the entropy; 0 is FedAvg", low=0)] = 0.1,
) -> fl.Method:
    """Modest: adds the confidence penalty of Pereyra et al. (2017) to each client's loss.

    min_w  F_i(w) - beta H(p_w(x)),   H the mean entropy of the predictions
    """

    def confidence_penalty(step: fl.Step) -> Tensor:
        logs = step.logits.log_softmax(dim=1)
        return beta * (logs.exp() * logs).sum(dim=1).mean()

    return fl.Method("modest", fl.Phase(terms=confidence_penalty))
