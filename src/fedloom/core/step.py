"""One mini-batch. The forward pass is made once, when it is first asked for, and shared by every term of the loss."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.key import Key
from fedloom.core.params import Params

if TYPE_CHECKING:
    from fedloom.core.job import Job


class Step:
    """What a loss may look at: the batch, the model's taps and logits, the weights in training, and the job.

    y holds class numbers, or a row of probabilities a sample where a mix has blended labels.
    """

    def __init__(self, x: Tensor, y: Tensor, model: Chain, job: Job, params: Params, phase: Key, number: int) -> None:
        self.x = x
        self.y = y
        self.model = model
        self.job = job
        self.params = params
        self.number = number
        self._phase = phase

    @cached_property
    def key(self) -> Key:
        """Randomness of this mini-batch."""
        return self._phase.fold("step", self.number)

    @cached_property
    def taps(self) -> dict[str, Tensor]:
        """The output of every block."""
        return self.model.taps(self.x)

    @cached_property
    def logits(self) -> Tensor:
        """The output of the last block."""
        return self.taps[self.model.names[-1]]

    @cached_property
    def ce(self) -> Tensor:
        """Mean cross-entropy."""
        return F.cross_entropy(self.logits, self.y)


Loss = Callable[[Step], Tensor]


def ce(step: Step) -> Tensor:
    """Mean cross-entropy, the loss of every method that does not say otherwise."""
    return step.ce
