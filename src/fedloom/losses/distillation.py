"""What a student learns from a teacher: divergences between their outputs, and the teachers themselves."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fedloom.core.job import Job
from fedloom.core.step import Step


def kl(target: Tensor, logits: Tensor, temperature: float = 1.0) -> Tensor:
    """KL(softmax(target / T) || softmax(logits / T)), mean over the batch, without a factor T^2; gradients flow into both."""
    p, q = F.log_softmax(target / temperature, -1), F.log_softmax(logits / temperature, -1)
    return F.kl_div(q, p, log_target=True, reduction="batchmean")


def taught(step: Step, slot: str = "received") -> Tensor:
    """What the teacher says of the batch: the weights of the slot, frozen, with batch statistics, without gradients."""
    with torch.no_grad():
        said: Tensor = step.job.once(Job.frozen, slot)(step.x)
    return said


def but_true(logits: Tensor, y: Tensor) -> Tensor:
    """The logits without that of the true class: (B, C - 1)."""
    others = torch.arange(logits.shape[1] - 1, device=logits.device)
    return logits.gather(1, others + (others >= y[:, None]).long())
