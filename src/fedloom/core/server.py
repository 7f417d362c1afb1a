"""The server's half of a round: stages turn a cohort of replies into new weights.

A stage is a pair of functions (init, step), as in optax: init makes its memory, and step maps the
memory and the cohort to the next memory and the changed cohort.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fedloom.core.key import Key
from fedloom.core.params import Params
from fedloom.core.roles import Roles, moved
from fedloom.core.transfer import in_float64

Kind = Literal["reply", "combine", "optimise", "apply"]
KINDS: tuple[Kind, ...] = ("reply", "combine", "optimise", "apply")
Memory = Mapping[str, Params]
By = Literal["samples", "clients", "seen"]


@dataclass(frozen=True)
class Reply:
    """What a client sends back; its memories go to the client store, not to the server."""

    client: int
    samples: int  # held by the client
    seen: int  # used in training
    uploads: Mapping[str, Params]  # "model" is the change of the weights
    memories: Mapping[str, Params] = field(default_factory=dict)
    loss: float = 0.0
    steps: int = 0


@dataclass(frozen=True)
class Absent:
    """A client that gave no answer: it failed, was late, or could not be reached.

    error: the exception that caused it, for a run that stops at the first failure.
    """

    client: int
    reason: str
    error: Exception | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Cohort:
    """The replies of a round in client order, and what the stages compute from them.

    population: number of clients in the federation. mean: combined uploads by name. The uploads of
    a reply may be on the disk (core/upload_spool.py), so a stage takes those of one reply after the
    other; one that needs all of them at once has them all in memory.
    """

    round: int
    params: Params
    replies: tuple[Reply, ...]
    population: int
    roles: Roles
    key: Key
    shared: Mapping[str, Params] = field(default_factory=dict)
    mean: Mapping[str, Params] = field(default_factory=dict)

    def with_mean(self, name: str, value: Mapping[str, Tensor]) -> Cohort:
        """The cohort with this combined upload; tensors missing from `value` keep their mean."""
        return replace(self, mean={**self.mean, name: {**self.mean.get(name, {}), **value}})

    @property
    def step(self) -> Params:
        """The combined change of the weights, without statistics and counters.

        These are the only tensors that a server optimiser changes.
        """
        return {n: t for n, t in self.mean["model"].items() if n in self.roles.weights}


class Stage(NamedTuple):
    """One step of the server. Stages are ordered by kind: reply, combine, optimise, apply.

    handles: the upload that a combine stage combines; "model" for the one apply stage that updates
    the weights.
    """

    kind: Kind
    name: str
    init: Callable[[Params], Memory]
    step: Callable[[Memory, Cohort], tuple[Memory, Cohort]]
    handles: str = ""


def no_memory(weights: Params) -> Memory:
    """The init of a stage without memory."""
    return {}


def mean(of: str = "model", by: By = "samples") -> Stage:
    """The mean of an upload over the replies.

    by: weights each reply by its samples held ("samples"), by its samples seen in training
    ("seen"), or equally ("clients").
    """

    def step(memory: Memory, c: Cohort) -> tuple[Memory, Cohort]:
        raw = [1.0 if by == "clients" else float(getattr(r, by)) for r in c.replies]
        shares = [w / sum(raw) for w in raw]
        return memory, c.with_mean(of, weighted_sum((r.uploads[of] for r in c.replies), shares))

    return Stage("combine", f"mean of {of} by {by}", no_memory, step, handles=of)


def weighted_sum(uploads: Iterable[Params], shares: Sequence[float]) -> Params:
    """sum_k shares_k uploads_k, in the order given; integers are summed in float64.

    One upload is in memory at a time, if `uploads` makes them one at a time.
    """
    rest = iter(uploads)
    total = {n: torch.mul(_float(t), shares[0]) for n, t in next(rest).items()}
    for share in shares[1:]:
        upload = next(rest)
        if total:  # else all tensors are private
            added = [_float(upload[n]) for n in total]
            torch._foreach_add_(list(total.values()), added, alpha=share)
            del added
        del upload  # before the next one is made
    return total


def _float(t: Tensor) -> Tensor:
    return t if t.is_floating_point() else in_float64(t)


def apply_mean() -> Stage:
    """params + mean of the changes."""

    def step(memory: Memory, c: Cohort) -> tuple[Memory, Cohort]:
        return memory, replace(c, params=moved(c.params, c.mean["model"]))

    return Stage("apply", "apply", no_memory, step, handles="model")
