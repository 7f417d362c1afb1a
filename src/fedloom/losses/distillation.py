"""Knowledge distillation: the teacher's logits and the divergence of a student from them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fedloom.core.job import Job
from fedloom.core.step import Step


def kl(
    target: Tensor, logits: Tensor, temperature: float = 1.0, counted: Tensor | None = None
) -> Tensor:
    """KL(softmax(target / T) || softmax(logits / T)), the mean over the batch.

    There is no factor T^2. Gradients flow into both arguments. counted: of logits (n, T, C) for
    every token, the tokens over which to take the mean (`Step.counted`); 0 if there is none.
    """
    p, q = F.log_softmax(target / temperature, -1), F.log_softmax(logits / temperature, -1)
    if counted is None:
        return F.kl_div(q, p, log_target=True, reduction="batchmean")
    by_token = F.kl_div(q, p, log_target=True, reduction="none").sum(-1)
    return torch.where(counted, by_token, 0.0).sum() / counted.sum().clamp(min=1)


def teacher_logits(step: Step, slot: str = "received") -> Tensor:
    """Logits of the teacher on the batch, without gradients.

    The teacher has the weights of the slot, frozen, and normalises by the batch's statistics.
    """
    with torch.no_grad():
        logits: Tensor = step.job.once(Job.frozen, slot)(step.x)
    return logits


def not_true_logits(logits: Tensor, y: Tensor) -> Tensor:
    """The logits of all classes but the true one: (B, C - 1), or (B, T, C - 1) for tokens."""
    others = torch.arange(logits.shape[-1] - 1, device=logits.device)
    return logits.gather(-1, others + (others >= y[..., None]).long())
