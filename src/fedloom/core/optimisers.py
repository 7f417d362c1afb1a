"""The optimisers of local training as rules: SGD, Adam and AdamW, bit for bit those of torch.optim.

`DecayGroups` restricts weight decay to some of the weights, as two parameter groups do, and
`SharpnessAware` turns any optimiser into SAM.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.params import Params
from fedloom.core.rule import Gradient, Rule
from fedloom.core.select import Selector


@dataclass(frozen=True)
class SGDRule:
    """torch.optim.SGD: g += weight_decay w; v = momentum v + g; w -= lr v.

    With Nesterov momentum, w -= lr (g + momentum v).
    """

    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    batches: int = 1

    def begin(self, model: Chain, weights: Params, memory: Params | None) -> list[Tensor] | None:
        return None if memory is None else [memory[n].clone() for n in weights]

    def step(
        self, weights: list[Tensor], gradient: Gradient, lr: float, state: list[Tensor] | None
    ) -> list[Tensor] | None:
        g = gradient(0)
        with torch.no_grad():
            if self.weight_decay:
                g = list(torch._foreach_add(g, weights, alpha=self.weight_decay))
            if self.momentum:
                state = self._velocity(g, state)
                if self.nesterov:
                    g = list(torch._foreach_add(g, state, alpha=self.momentum))
                else:
                    g = state
            torch._foreach_add_(weights, g, alpha=-lr)
        return state

    def _velocity(self, g: list[Tensor], state: list[Tensor] | None) -> list[Tensor]:
        if state is None:
            return [t.clone() for t in g]
        torch._foreach_mul_(state, self.momentum)
        torch._foreach_add_(state, g)
        return state

    def end(
        self, names: list[str], state: list[Tensor] | None
    ) -> tuple[Mapping[str, Params], Params | None]:
        return {}, None if state is None else dict(zip(names, state, strict=True))

    def effective_steps(self, steps: int) -> float:
        """
        >>> SGDRule().effective_steps(3), SGDRule(momentum=0.5).effective_steps(3)
        (3.0, 4.25)
        """
        ones = itertools.repeat(1.0, steps)
        distance = sum(itertools.accumulate(ones, lambda v, g: self.momentum * v + g))
        return steps + self.momentum * distance if self.nesterov else distance


class Moments(NamedTuple):
    """Adam's state: the number of steps, and running means for each weight, by name."""

    steps: int
    means: Mapping[str, list[Tensor]]


@dataclass(frozen=True)
class AdamRule:
    """torch.optim.Adam, or torch.optim.AdamW if weight decay is decoupled; t counts the steps.

        m = beta1 m + (1 - beta1) g,   v = beta2 v + (1 - beta2) g^2
        w -= lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)

    decoupled: w -= lr weight_decay w before the step, instead of g += weight_decay w.
    amsgrad: divide by the largest v so far.
    """

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    decoupled: bool = False
    amsgrad: bool = False
    batches: int = 1

    def begin(self, model: Chain, weights: Params, memory: Params | None) -> Moments:
        names = ["exp_avg", "exp_avg_sq", *["max_exp_avg_sq"] * self.amsgrad]  # as in torch.optim
        if memory is None:
            zeros = {name: [torch.zeros_like(w) for w in weights.values()] for name in names}
            return Moments(0, zeros)
        means = {
            # in the layout of the weights: where layouts differ, torch may round differently
            name: [torch.empty_like(w).copy_(memory[f"{name}.{n}"]) for n, w in weights.items()]
            for name in names
        }
        return Moments(int(memory["steps"]), means)

    def step(self, weights: list[Tensor], gradient: Gradient, lr: float, state: Moments) -> Moments:
        g = gradient(0)
        with torch.no_grad():
            if self.weight_decay and self.decoupled:
                torch._foreach_mul_(weights, 1 - lr * self.weight_decay)
            elif self.weight_decay:
                g = list(torch._foreach_add(g, weights, alpha=self.weight_decay))
            (beta1, beta2), t = self.betas, state.steps + 1
            m, v = self._updated(state.means, g)
            divisor = torch._foreach_sqrt(v)
            torch._foreach_div_(divisor, (1 - beta2**t) ** 0.5)
            torch._foreach_add_(divisor, self.eps)
            torch._foreach_addcdiv_(weights, m, divisor, value=-lr / (1 - beta1**t))
        return Moments(t, state.means)

    def _updated(
        self, means: Mapping[str, list[Tensor]], g: list[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """m and v after another gradient; both are changed in place."""
        (beta1, beta2), m, v = self.betas, means["exp_avg"], means["exp_avg_sq"]
        torch._foreach_lerp_(m, g, 1 - beta1)
        torch._foreach_mul_(v, beta2)
        torch._foreach_addcmul_(v, g, g, value=1 - beta2)
        if not self.amsgrad:
            return m, v
        torch._foreach_maximum_(means["max_exp_avg_sq"], v)
        return m, means["max_exp_avg_sq"]

    def end(self, names: list[str], state: Moments) -> tuple[Mapping[str, Params], Params]:
        memory = {
            f"{name}.{n}": t
            for name, tensors in state.means.items()
            for n, t in zip(names, tensors, strict=True)
        }
        return {}, {**memory, "steps": torch.tensor(state.steps)}

    def effective_steps(self, steps: int) -> float:
        return math.nan


class Group(NamedTuple):
    """Weights that share a rule: their positions among all trained weights, and its state."""

    rule: Rule
    positions: list[int]
    state: Any

    def members(self, of: list[Any]) -> list[Any]:
        return [of[i] for i in self.positions]


@dataclass(frozen=True)
class DecayGroups:
    """Two parameter groups: the weights that `decays` chooses, and those without weight decay.

    with_decay, without_decay: the same optimiser, with and without weight decay.
    """

    with_decay: Rule
    without_decay: Rule
    decays: Selector

    @property
    def batches(self) -> int:
        return self.with_decay.batches

    def begin(self, model: Chain, weights: Params, memory: Params | None) -> list[Group]:
        chosen, names = self.decays(model), list(weights)

        def group(rule: Rule, decays: bool) -> Group:
            positions = [i for i, n in enumerate(names) if (n in chosen) is decays]
            own = {names[i]: weights[names[i]] for i in positions}
            return Group(rule, positions, rule.begin(model, own, memory))

        both = [group(self.with_decay, True), group(self.without_decay, False)]
        return [g for g in both if g.positions]

    def step(
        self, weights: list[Tensor], gradient: Gradient, lr: float, state: list[Group]
    ) -> list[Group]:
        whole = cache(gradient)  # computed once, for both groups

        def moved(group: Group) -> Group:
            def own(n: int) -> list[Tensor]:
                return group.members(whole(n))

            return group._replace(
                state=group.rule.step(group.members(weights), own, lr, group.state)
            )

        return [moved(group) for group in state]

    def end(
        self, names: list[str], state: list[Group]
    ) -> tuple[Mapping[str, Params], Params | None]:
        ends = [group.rule.end(group.members(names), group.state) for group in state]
        memories = [memory for _, memory in ends if memory is not None]
        slots = {slot: weights for further, _ in ends for slot, weights in further.items()}
        merged = {name: t for memory in memories for name, t in memory.items()}
        return slots, merged if memories else None

    def effective_steps(self, steps: int) -> float:
        return self.with_decay.effective_steps(steps)


@dataclass(frozen=True)
class SharpnessAware:
    """SAM: a step of `rule` with the gradient at w + rho g(w) / ||g(w)||, on the same batch.

    Foret et al., ICLR 2021, eq. (2) and (3). Both gradients are clipped. Batch norms update their
    statistics at each of them, and the training loss is the mean over both.
    """

    rule: Rule
    rho: float

    @property
    def batches(self) -> int:
        return self.rule.batches

    def begin(self, model: Chain, weights: Params, memory: Params | None) -> Any:
        return self.rule.begin(model, weights, memory)

    def step(self, weights: list[Tensor], gradient: Gradient, lr: float, state: Any) -> Any:
        def sharpest(n: int) -> list[Tensor]:
            g, before = gradient(n), [w.detach().clone() for w in weights]
            with torch.no_grad():
                ascent = torch._foreach_mul(g, self.rho / (norm_of_all(g) + 1e-12))
                torch._foreach_add_(weights, ascent)
            g = gradient(n)
            with torch.no_grad():
                torch._foreach_copy_(weights, before)
            return g

        return self.rule.step(weights, sharpest, lr, state)

    def end(self, names: list[str], state: Any) -> tuple[Mapping[str, Params], Params | None]:
        return self.rule.end(names, state)

    def effective_steps(self, steps: int) -> float:
        return self.rule.effective_steps(steps)


def norm_of_all(tensors: Sequence[Tensor]) -> Tensor:
    """The norm of several tensors together."""
    norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(list(tensors))))
    return norm
