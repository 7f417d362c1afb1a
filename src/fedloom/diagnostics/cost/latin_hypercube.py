"""Latin hypercube sampling of the random choices of a method, for the expected cost of a step.

Over `size` steps each draw of a step visits every `size`-th part of its range once. The mean of the
separate contribution of each draw is then nearly exact with few steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from fedloom.core.key import Key

aten = torch.ops.aten
MAX_CHOICE_SIZE = 64  # a larger draw is noise on a tensor, not a choice that changes the work


class LatinHypercube:
    """Replaces what torch draws by the points of Latin hypercubes of `size` steps.

    drawn: numbers replaced in the current step. Draws of more than MAX_CHOICE_SIZE numbers are kept
    as torch made them.
    """

    def __init__(self, key: Key, size: int) -> None:
        self.drawn = 0
        self._key = key
        self._size = size
        self._step = 0
        self._columns: dict[tuple[int, int], Tensor] = {}

    def start_step(self, step: int) -> None:
        """Begin a step; the draws of a step are the same whenever its number is."""
        self._step, self.drawn = step, 0

    def redraw(self, result: Any, transform: Callable[..., Tensor], args: Sequence[Any]) -> None:
        """Overwrite what an operation has drawn. transform: the operation's entry of TRANSFORMS."""
        if not isinstance(result, Tensor) or result.is_meta:
            return
        if 0 < result.numel() <= MAX_CHOICE_SIZE:
            uniform = torch.stack([self._next() for _ in range(result.numel())])
            result.copy_(transform(uniform.reshape(result.shape), *args))

    def _next(self) -> Tensor:
        """The next number of the current step, uniform in [0, 1)."""
        number, self.drawn = self.drawn, self.drawn + 1
        cube, row = divmod(self._step, self._size)
        if (cube, number) not in self._columns:
            noise = self._key.fold(cube, number).generator()
            order = torch.randperm(self._size, generator=noise)
            offsets = torch.rand(self._size, generator=noise)
            self._columns[cube, number] = (order + offsets) / self._size
        return self._columns[cube, number][row]


def _integer(u: Tensor, *args: Any) -> Tensor:
    bounds = [a for a in args if isinstance(a, int)]
    low, high = bounds if len(bounds) == 2 else (0, bounds[0])
    return torch.floor(low + u * (high - low))


def _uniform(u: Tensor, result: Tensor, low: float = 0.0, high: float = 1.0) -> Tensor:
    return low + u * (high - low)


# From uniform numbers in [0, 1), and the operation's arguments, to what the operation would draw.
TRANSFORMS: dict[Any, Callable[..., Tensor]] = {
    aten.rand: lambda u, *args: u,
    aten.uniform_: _uniform,
    aten.randint: _integer,
    aten.bernoulli: lambda u, p, *args: u < p,
    aten.bernoulli_: lambda u, result, p=0.5, *args: u < p,
}


def mean_and_error(values: Sequence[float], size: int) -> tuple[float, float]:
    """The mean over hypercubes of `size` steps, and its standard error from their spread."""
    cubes = torch.tensor(values, dtype=torch.float64).reshape(-1, size).mean(dim=1)
    return float(cubes.mean()), float(cubes.std()) / math.sqrt(len(cubes))
