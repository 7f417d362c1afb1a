"""A Rule says how one step of local training changes the weights, given gradients.

The loop over batches (core/solver.py) knows nothing of it: an optimiser is a rule, and so is what a
method does instead, such as pFedMe's inner steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.params import Params

# gradient(n): of the loss on the n-th batch of a step, at the current weights
Gradient = Callable[[int], list[Tensor]]


class Rule(Protocol):
    """How one step changes the weights in place, given gradients on `batches` mini-batches."""

    @property
    def batches(self) -> int:
        """Mini-batches per step."""
        ...

    def begin(self, model: Chain, weights: Params, memory: Params | None) -> Any:
        """The state before the first step.

        weights: those of the model that are trained. memory: what `end` returned in an earlier
        round, which must not be changed in place.
        """
        ...

    def step(self, weights: list[Tensor], gradient: Gradient, lr: float, state: Any) -> Any:
        """Change the weights in place and return the next state."""
        ...

    def end(self, names: list[str], state: Any) -> tuple[Mapping[str, Params], Params | None]:
        """Further weights by slot, and the memory to keep for the next round."""
        ...

    def effective_steps(self, steps: int) -> float:
        """How far a constant gradient of 1 moves the weights from rest, divided by the lr.

        NaN if the change of the weights is not a weighted sum of the gradients, as with Adam.
        """
        ...
