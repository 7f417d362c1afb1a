"""One mini-batch. The forward pass runs once, on first use, and all terms of the loss share it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.key import Key
from fedloom.core.params import Params

if TYPE_CHECKING:
    from fedloom.core.job import Job

LARGE_TENSOR = 1 << 18  # elements; little more fits into a core's private cache


class Step:
    """What a loss may use: the batch, the model's taps and logits, the trained weights and the job.

    y holds the targets in the form of the task (core/learning_task.py): for classification class
    indices, or one row of probabilities per sample after labels were mixed.
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
        """The random key of this mini-batch."""
        return self._phase.fold("step", self.number)

    @cached_property
    def taps(self) -> dict[str, Tensor]:
        """The output of every block."""
        return self.model.taps(self.x)

    @cached_property
    def vector(self) -> Tensor:
        """The trained weights as one vector, for geometric terms; built once and shared by them."""
        return _joined(self.params, self.params)

    def vector_of(self, make: Callable[[Job], Mapping[str, Tensor]]) -> Tensor:
        """make(job) as a vector in the order of `vector`; built once per job."""
        return self.job.once(_flattened, make, tuple(self.params))

    def pieces_with(
        self, make: Callable[[Job], Mapping[str, Tensor]]
    ) -> list[tuple[Tensor, Tensor]]:
        """Pieces of `vector` with the matching pieces of `vector_of(make)`.

        For terms that are sums over the weights: unlike `vector`, no large tensor is copied.
        """
        return [(w, self.job.once(_flattened, make, names)) for names, w in self._pieces.items()]

    @cached_property
    def _pieces(self) -> dict[tuple[str, ...], Tensor]:
        """The trained weights as vectors, by the tensor names in each.

        A large tensor is a piece of its own; consecutive small ones are concatenated.
        """

        def group(name: str) -> str:
            return name if self.params[name].numel() > LARGE_TENSOR else ""

        runs = [tuple(names) for _, names in groupby(self.params, key=group)]
        return {names: _joined(self.params, names) for names in runs}

    @cached_property
    def logits(self) -> Tensor:
        """The output of the last block."""
        return self.taps[self.model.names[-1]]

    @cached_property
    def loss(self) -> Tensor:
        """The mean loss of the task on the batch."""
        return self.job.task.loss(self.logits, self.y)

    @cached_property
    def ce(self) -> Tensor:
        """Mean cross-entropy, for methods that need classes; usually the task's loss itself."""
        task = self.job.task
        if task.loss is task.cross_entropy:
            return self.loss
        return task.cross_entropy(self.logits, self.y)

    @property
    def counted(self) -> Tensor | None:
        """Which targets count in the loss; None if all of them do."""
        return self.job.task.counted(self.y)


def _flattened(
    job: Job, make: Callable[[Job], Mapping[str, Tensor]], names: tuple[str, ...]
) -> Tensor:
    return _joined(job.once(make), names)


def _joined(params: Mapping[str, Tensor], names: Iterable[str]) -> Tensor:
    """The tensors with these names as one vector; a single tensor is not copied."""
    flat = [params[n].reshape(-1) for n in names]
    return flat[0] if len(flat) == 1 else torch.cat(flat)


Loss = Callable[[Step], Tensor]


def task_loss(step: Step) -> Tensor:
    """The mean loss of the task, the default loss of a phase."""
    return step.loss
