"""Features pulled to those of one teacher and pushed from those of another."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.job import Job
from fedloom.core.select import BATCH_NORMS


def contrast(z: Tensor, near: Tensor, far: Tensor, temperature: float) -> Tensor:
    """-log softmax([cos(z, near), cos(z, far)] / temperature) of the first, the mean over the batch."""
    # in one call, so that the gradients of two that are equal cancel before they meet another one, to the bit
    alike = F.cosine_similarity(z.unsqueeze(-2), torch.stack((near, far), dim=-2), dim=-1)
    return -F.log_softmax(alike / temperature, dim=-1)[..., 0].mean()


def quiet_teacher(job: Job, slot: str, norm: Literal["batch", "running"]) -> Chain:
    """A frozen teacher that draws nothing: only norms may be in training, so that the model's own draws go on as without it.

    With norm "batch" a teacher moves the running statistics of its own scratch copy, which nobody reads.
    """
    teacher = job.frozen(slot, norm).eval()
    for layer in teacher.modules():
        if isinstance(layer, BATCH_NORMS):
            layer.train(norm == "batch")
    return teacher
