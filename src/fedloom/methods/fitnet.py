"""FitNet: distils the received global model's features after every block into the local model.

    L = CE(z, y) + weight 1/(M-1) sum_m mean (f_m - g_m)^2

f_m are the outputs of the M - 1 blocks before the last, g_m those of the frozen received blocks.

weight   >= 0, weight of the feature loss; 0 is FedAvg.

State: none. Uploads: the model. Needs: at least 2 blocks.
Reference: Romero et al., ICLR 2015; a baseline of FedMLB (Kim et al., ICML 2022), which says
"block-wise features" and gives neither form nor weight. Departures: no regressor, since teacher and
student have the same shapes.
"""

from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from fedloom.core.job import Job
from fedloom.core.method import Method, Phase, blocks_needed
from fedloom.core.spec import Param
from fedloom.core.step import Step

PAPER = "Romero et al., ICLR 2015"
LINK = "https://arxiv.org/abs/1412.6550"


def fitnet(
    weight: Annotated[float, Param("weight of the feature loss; 0 is FedAvg", low=0)] = 1.0,
) -> Method:
    def match_features(step: Step) -> Tensor:
        cuts = step.model.names[:-1]
        teacher, g = step.job.once(Job.frozen), step.x
        total = step.logits.new_zeros(())
        for cut in cuts:
            with torch.no_grad():
                g = teacher.block(cut)(g)
            total = total + F.mse_loss(step.taps[cut], g)
        return weight / len(cuts) * total

    phase = Phase(terms=(match_features,) if weight else ())
    return Method("fitnet", (phase,), needs=(blocks_needed(2),))
