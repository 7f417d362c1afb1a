"""FitNet: FedAvg with the received model as teacher of the features behind every block.

    L = CE(z, y) + weight 1/(M-1) sum_m mean (f_m - g_m)^2

f_m are the outputs of the local blocks but the last, g_m those of the received ones, frozen.
weight >= 0   0 is FedAvg.
State     none.   Uploads  model.   Needs  a chain of at least 2 blocks.
Romero et al., ICLR 2015; a baseline of FedMLB (Kim et al., ICML 2022), which says "block-wise features" and prints neither form
nor weight. Departures: no regressor, since teacher and student have the same shapes.
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
    weight: Annotated[float, Param("weight of the features' distance; 0 is FedAvg", low=0)] = 1.0,
) -> Method:
    def resemble(step: Step) -> Tensor:
        cuts = step.model.names[:-1]
        teacher, g = step.job.once(Job.frozen), step.x
        total = step.logits.new_zeros(())
        for cut in cuts:
            with torch.no_grad():
                g = teacher.block(cut)(g)
            total = total + F.mse_loss(step.taps[cut], g)
        return weight / len(cuts) * total

    return Method(
        "fitnet", (Phase(terms=(resemble,) if weight else ()),), needs=(blocks_needed(2),)
    )
