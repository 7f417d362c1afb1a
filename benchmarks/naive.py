"""FedMLB as in its authors' code, one pathway after the other: shows what batching them saves."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fedloom.core.job import Job
from fedloom.core.method import Method, Phase
from fedloom.core.step import Step
from fedloom.losses.distillation import kl


def fedmlb_by_pathway() -> Method:
    """The same loss as `fedmlb()`, computed pathway by pathway."""

    def branches(step: Step) -> Tensor:
        received = step.job.once(Job.frozen)
        hybrids = [received.run(step.taps[cut], after=cut) for cut in step.model.names[:-1]]
        losses = [F.cross_entropy(h, step.y) + kl(h, step.logits) for h in hybrids]
        return torch.stack(losses).mean()

    return Method("fedmlb_by_pathway", (Phase(terms=(branches,)),))
