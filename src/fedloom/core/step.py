"""One mini-batch. The forward pass is made once, when it is first asked for, and shared by every term of the loss."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.key import Key
from fedloom.core.params import Params

if TYPE_CHECKING:
    from fedloom.core.job import Job

LARGE = 1 << 18  # numbers in a tensor: a core's own cache holds little more


class Step:
    """What a loss may look at: the batch, the model's taps and logits, the weights in training, and the job.

    y holds class numbers, or a row of probabilities a sample where a mix has blended labels.
    """

    def __init__(
        self, x: Tensor, y: Tensor, model: Chain, job: Job, params: Params, phase: Key, number: int
    ) -> None:
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
    def vector(self) -> Tensor:
        """The weights in training as one vector, for terms that are geometry; made once, shared by all of them."""
        return _joined(self.params, self.params)

    def along(self, make: Callable[[Job], Mapping[str, Tensor]]) -> Tensor:
        """What `make` makes of the job, as a vector in the same order; made once a job."""
        return self.job.once(_flattened, make, tuple(self.params))

    def beside(self, make: Callable[[Job], Mapping[str, Tensor]]) -> list[tuple[Tensor, Tensor]]:
        """`vector` and `along` piece by piece, for terms that are sums over the weights: no large tensor is copied for them."""
        return [(w, self.job.once(_flattened, make, names)) for names, w in self._pieces.items()]

    @cached_property
    def _pieces(self) -> dict[tuple[str, ...], Tensor]:
        """The weights in training as vectors, by the names of what lies in each: a large tensor alone, small neighbours joined."""
        alike = groupby(self.params, key=lambda n: n if self.params[n].numel() > LARGE else "")
        runs = [tuple(names) for _, names in alike]
        return {names: _joined(self.params, names) for names in runs}

    @cached_property
    def logits(self) -> Tensor:
        """The output of the last block."""
        return self.taps[self.model.names[-1]]

    @cached_property
    def ce(self) -> Tensor:
        """Mean cross-entropy."""
        return (
            F.cross_entropy(self.logits, self.y)
            if self.y.dim() == 1
            else _soft_entropy(self.logits, self.y)
        )


def _soft_entropy(logits: Tensor, rows: Tensor) -> Tensor:
    """With rows of probabilities. As one product: torch's own makes twice the passes over few numbers, 1 % of a step of LeNet-5."""
    return torch.dot(F.log_softmax(logits, 1).flatten(), rows.div(-len(rows)).flatten())


def _flattened(
    job: Job, make: Callable[[Job], Mapping[str, Tensor]], names: tuple[str, ...]
) -> Tensor:
    return _joined(job.once(make), names)


def _joined(params: Mapping[str, Tensor], names: Iterable[str]) -> Tensor:
    """The tensors of these names as one vector; a single one is not copied."""
    flat = [params[n].reshape(-1) for n in names]
    return flat[0] if len(flat) == 1 else torch.cat(flat)


Loss = Callable[[Step], Tensor]


def ce(step: Step) -> Tensor:
    """Mean cross-entropy, the loss of every method that does not say otherwise."""
    return step.ce
