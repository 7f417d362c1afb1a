"""The arithmetic of local training: that of the weights, or mixed precision (AMP).

Weights, gradients and the optimiser keep their type; in a forward pass torch.autocast casts the
operations that gain from it. In fp16 small gradients vanish and large ones overflow, so the loss is
multiplied by a scale, as torch.amp.GradScaler does:

    a gradient with NaN or Inf    the step is skipped, and the scale halved
    GROWTH_INTERVAL finite ones   the scale is doubled

Every descent has a scale of its own that begins at the same value, so a client's result does not
depend on who ran before it, and no checkpoint has to store a scale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Literal, TypeVar

import torch
from torch import Tensor

from fedloom.core.errors import RunError

Kind = Literal["full", "bf16", "fp16"]
S = TypeVar("S")
_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
INITIAL_SCALE = 2.0**16
SMALLEST_SCALE = 1.0
GROWTH_INTERVAL = 2000  # finite gradients in a row


class Overflow(Exception):
    """A gradient has NaN or Inf at a scale that can be lowered."""


class Precision:
    """The arithmetic of one descent."""

    def __init__(self, kind: Kind, device: torch.device) -> None:
        self._type = _TYPES.get(kind)
        self._device = device
        self.scale = INITIAL_SCALE if kind == "fp16" else 1.0
        self._finite = 0  # gradients in a row
        self.can_overflow = kind == "fp16"
        self.skipped = 0  # steps

    def forward(self) -> AbstractContextManager[object]:
        """The context of a forward pass and its loss."""
        if self._type is None:
            return nullcontext()
        return torch.autocast(self._device.type, dtype=self._type)

    def step(self, make: Callable[[], S], weights: Sequence[Tensor], state: S) -> S:
        """Make a step of a rule and return its new state.

        After an overflow the weights and the state are those before the step.
        """
        if not self.can_overflow:
            return make()
        before = [w.detach().clone() for w in weights]
        try:
            return make()
        except Overflow:
            self.skipped += 1
            with torch.no_grad():  # a rule may have moved them before it asked for a gradient
                torch._foreach_copy_(list(weights), before)
            return state

    def check_moved(self, steps: int) -> None:
        """Raise if all of a descent's steps were skipped: round after round would change nothing.

        Every descent begins with the same scale, so the next one would not do better.
        """
        if steps and self.skipped == steps:
            raise RunError(
                f"precision=fp16: the gradient overflows in every local step ({steps}), so nothing "
                "is trained; set precision=bf16 or full, raise train.epochs or train.steps (each "
                "skipped step halves the scale of the next), or make the loss smaller"
            )

    def scaled(self, loss: Tensor) -> Tensor:
        """The loss whose gradient is taken."""
        return loss * self.scale if self.can_overflow else loss

    def unscaled(self, grads: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The gradient of the loss itself; raises Overflow if the step has to be skipped."""
        if not self.can_overflow:
            return grads
        grads = tuple(torch._foreach_mul(grads, 1 / self.scale))
        if self.scale > SMALLEST_SCALE and not _all_finite(grads):
            self.scale, self._finite = max(self.scale / 2, SMALLEST_SCALE), 0
            raise Overflow
        self._finite += 1
        if self._finite == GROWTH_INTERVAL:
            self.scale, self._finite = self.scale * 2, 0
        return grads


@contextmanager
def full_precision() -> Iterator[None]:
    """Switch autocasting off, on every device where it is on."""
    with ExitStack() as stack:
        for device in ("cpu", "cuda", "mps"):
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield


def _all_finite(grads: tuple[Tensor, ...]) -> bool:
    """One wait for the device: the host has to know whether to make the step."""
    return bool(torch.isfinite(torch.stack(torch._foreach_norm(grads))).all())
