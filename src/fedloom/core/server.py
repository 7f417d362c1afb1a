"""The server's half: a cohort of replies goes through stages, each a word of (init, step), until new weights come out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fedloom.core.key import Key
from fedloom.core.params import Params
from fedloom.core.roles import Roles, moved

Kind = Literal["reply", "combine", "optimise", "apply"]
KINDS: tuple[Kind, ...] = ("reply", "combine", "optimise", "apply")
Memory = Mapping[str, Params]
By = Literal["samples", "clients", "seen"]


@dataclass(frozen=True)
class Reply:
    """What a client sends back, and what it wants to remember (which stays with the client's store)."""

    client: int
    samples: int  # that it holds
    seen: int  # that it trained on
    uploads: Mapping[str, Params]  # "model" is the change of the weights
    memories: Mapping[str, Params] = field(default_factory=dict)
    loss: float = 0.0
    steps: int = 0


@dataclass(frozen=True)
class Cohort:
    """The replies of a round, in client order, and what the stages make of them."""

    round: int
    params: Params
    replies: tuple[Reply, ...]
    population: int
    roles: Roles
    key: Key
    shared: Mapping[str, Params] = field(default_factory=dict)
    mean: Mapping[str, Params] = field(default_factory=dict)

    def with_mean(self, name: str, value: Mapping[str, Tensor]) -> Cohort:
        """The same cohort with another combined upload; names the value lacks keep theirs."""
        return replace(self, mean={**self.mean, name: {**self.mean.get(name, {}), **value}})

    @property
    def step(self) -> Params:
        """The combined change of the weights, without statistics and counters: all that a server optimiser may touch."""
        return {n: t for n, t in self.mean["model"].items() if n in self.roles.weights}


class Stage(NamedTuple):
    """A word of the server. kind fixes its place in the line: reply, combine, optimise, apply.

    handles: the upload that a combine stage combines, or "model" for the one apply stage that moves the weights.
    """

    kind: Kind
    name: str
    init: Callable[[Params], Memory]
    step: Callable[[Memory, Cohort], tuple[Memory, Cohort]]
    handles: str = ""


def no_memory(weights: Params) -> Memory:
    """The init of a stage that remembers nothing."""
    return {}


def mean(of: str = "model", by: By = "samples") -> Stage:
    """The mean of an upload over the replies: weighted by samples held, by samples seen in training, or each client once."""

    def step(memory: Memory, c: Cohort) -> tuple[Memory, Cohort]:
        raw = [1.0 if by == "clients" else float(getattr(r, by)) for r in c.replies]
        shares = [w / sum(raw) for w in raw]
        return memory, c.with_mean(of, weighted_sum([r.uploads[of] for r in c.replies], shares))

    return Stage("combine", f"mean of {of} by {by}", no_memory, step, handles=of)


def weighted_sum(uploads: list[Params], shares: list[float]) -> Params:
    """sum_k shares_k uploads_k, in the order given; integers are summed in float64."""
    names = list(uploads[0])
    if not names:  # everything is private
        return {}
    total = [torch.mul(_float(uploads[0][n]), shares[0]) for n in names]
    for upload, share in zip(uploads[1:], shares[1:], strict=True):
        torch._foreach_add_(total, [_float(upload[n]) for n in names], alpha=share)
    return dict(zip(names, total, strict=True))


def _float(t: Tensor) -> Tensor:
    return t if t.is_floating_point() else t.cpu().double()  # not every device has float64


def apply_mean() -> Stage:
    """params + mean of the changes."""

    def step(memory: Memory, c: Cohort) -> tuple[Memory, Cohort]:
        return memory, replace(c, params=moved(c.params, c.mean["model"]))

    return Stage("apply", "apply", no_memory, step, handles="model")
