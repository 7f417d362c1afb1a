"""Rules that are not in the package: one step each, unaware of batches, rounds and clients."""

from dataclasses import dataclass

from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.params import Params
from fedloom.core.rule import Gradient


@dataclass(frozen=True)
class Moreau:
    """pFedMe: theta descends to the Moreau envelope on one batch, then w moves towards theta."""

    pace: float
    inner: int
    stiffness: float
    decay: float
    batches: int = 1

    def begin(self, model: Chain, weights: Params, memory: Params | None) -> list[Tensor]:
        return [w.detach().clone() for w in weights.values()]

    def step(
        self, weights: list[Tensor], gradient: Gradient, lr: float, theta: list[Tensor]
    ) -> list[Tensor]:
        centre = [w.detach().clone() for w in weights]
        for w, t in zip(weights, theta, strict=True):
            w.data.copy_(t)
        for _ in range(self.inner):
            for w, g, c in zip(weights, gradient(0), centre, strict=True):
                w.data -= self.pace * (g + self.stiffness * (w.data - c) + self.decay * w.data)
        theta = [w.detach().clone() for w in weights]
        for w, t, c in zip(weights, theta, centre, strict=True):
            w.data.copy_(c - lr * self.stiffness * (c - t))
        return theta

    def end(self, names: list[str], theta: list[Tensor]) -> tuple[dict[str, Params], None]:
        return {"theta": dict(zip(names, theta, strict=True))}, None

    def effective_steps(self, steps: int) -> float:
        return steps


@dataclass(frozen=True)
class Maml:
    """Per-FedAvg: the gradient after a step of size alpha.

    First order, or with delta the Hessian term by finite differences on a third batch.
    """

    alpha: float
    delta: float = 0.0

    @property
    def batches(self) -> int:
        return 3 if self.delta else 2

    def begin(self, model: Chain, weights: Params, memory: Params | None) -> None:
        return None

    def step(self, weights: list[Tensor], gradient: Gradient, lr: float, state: None) -> None:
        def at(direction: list[Tensor], length: float, batch: int) -> list[Tensor]:
            before = [w.detach().clone() for w in weights]
            for w, d in zip(weights, direction, strict=True):
                w.data += length * d
            found = gradient(batch)
            for w, b in zip(weights, before, strict=True):
                w.data.copy_(b)
            return found

        outer = at(gradient(0), -self.alpha, 1)
        bend = outer
        if self.delta:
            ahead, behind = at(outer, self.delta, 2), at(outer, -self.delta, 2)
            bend = [
                g - self.alpha * (a - b) / (2 * self.delta)
                for g, a, b in zip(outer, ahead, behind, strict=True)
            ]
        for w, g in zip(weights, bend, strict=True):
            w.data -= lr * g

    def end(self, names: list[str], state: None) -> tuple[dict[str, Params], None]:
        return {}, None

    def effective_steps(self, steps: int) -> float:
        return steps
