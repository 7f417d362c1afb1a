"""The exchange of MAFL, on which FedMix stands: before round 0 clients send averages of their data, and all blend with them.

    x_g, y_g = 1/|G| sum_{i in G} (x_i, onehot y_i),   for each group G of M samples of a client

x is what the network sees: normalised, never augmented. What the server pools is sent along as `shared["mashed"]`:

    x       (entries, *sample)     the averages
    y       (entries, classes)     their labels, rows of probabilities
    owner   (entries,)             whose average it is; -1 where the server has mixed several clients

A method asks for it with one decorator, and so gains the parameters of `averaged_data_exchange` beside its own:

    @exchanging
    def naivemix(share: ... = 0.1, *, averaged: AveragedData) -> Method:
        ...  x_g, y_g = averaged.draw(step.job, step.key)
        return Method("naivemix", ..., prologue=(averaged.exchange,))

Yoon et al., ICLR 2021, algorithm 1. The tail, where M does not divide a client's samples, the paper leaves open: here it is kept.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fedloom.core.errors import UserError
from fedloom.core.job import Data, Job
from fedloom.core.key import Key
from fedloom.core.method import Exchange, Method
from fedloom.core.params import Params
from fedloom.core.spec import Param
from fedloom.exchange.privacy import Release, check, sentence

NAME = "mashed"  # the paper's word; keys derive from it, so another name would change every draw
CHUNK = 1000  # samples that are normalised at a time


def averaged_data_exchange(
    size: Annotated[int, Param("samples an average; 0: all of a client's", low=0)] = 0,
    split: Annotated[
        Literal["random", "same-class"],
        Param("which samples are averaged: any, or of one class each"),
    ] = "random",
    tail: Annotated[
        Literal["keep", "drop"], Param("what becomes of the last, smaller group of a client")
    ] = "keep",
    least: Annotated[int, Param("clients with fewer samples send nothing; 1: all send", low=1)] = 1,
    merge: Annotated[
        int, Param("averages that the server averages once more; 1 leaves them", low=1)
    ] = 1,
    noise: Annotated[
        float,
        Param("deviation of Gaussian noise on an average, in units of the network's input", low=0),
    ] = 0.0,
    label_noise: Annotated[
        float,
        Param("the same on its label, which is then made a row of probabilities again", low=0),
    ] = 0.0,
    clip: Annotated[
        float | None,
        Param("bound on the norm of a sample before it is averaged; none: no bound", above=0),
    ] = None,
    epsilon: Annotated[
        float | None, Param("limit of what the exchange may give away; none: no limit", above=0)
    ] = None,
    delta: Annotated[
        float, Param("chance with which more than epsilon may be given away", above=0, below=1)
    ] = 1e-5,
) -> Exchange:
    """The question to all clients, how the server pools the answers, and what is guaranteed (exchange/privacy.py)."""

    def client(job: Job, key: Key) -> Params:
        few = len(job.data) < least
        groups = [] if few else grouped(job.data.labels, size, split, tail, key.fold("split"))
        x, y = averages(job, groups, clip)
        x, y = noisy(x, noise, key.fold("noise")), noisy(y, label_noise, key.fold("label noise"))
        return {
            "x": x,
            "y": probabilities(y) if label_noise else y,
            "owner": torch.full((len(y),), job.client),
        }

    def notice(sizes: Sequence[int], releases: int) -> str:
        senders = [n for n in sizes if n >= max(least, size if tail == "drop" else 1)]
        if not senders:
            raise UserError(
                f"no client has an average to send: the largest has {max(sizes)} samples; lower least or size"
            )
        release = Release(
            smallest(senders, size, split, tail),
            clip,
            noise,
            label_noise,
            split == "same-class",
            releases,
        )
        if epsilon is not None:
            check(release, epsilon, delta)
        return sentence(release, delta)

    return Exchange(NAME, client, lambda answers, key: pooled(answers, merge, key), unsound, notice)


def draw(job: Job, key: Key, exclude_self: bool = False) -> tuple[Tensor, Tensor]:
    """One average and its label, drawn uniformly; a method draws once a batch. exclude_self: of other clients', if any."""
    sent, allowed = job.shared[NAME], job.once(_allowed, exclude_self)
    at = allowed[key.fold(NAME).below(len(allowed))]
    return sent["x"][at], sent["y"][at]


def _allowed(job: Job, exclude_self: bool) -> list[int]:
    """Which entries may be drawn; its own, if there are no others."""
    owners = job.shared[NAME]["owner"].tolist()
    foreign = [i for i, owner in enumerate(owners) if owner != job.client]
    return foreign if exclude_self and foreign else list(range(len(owners)))


def grouped(labels: Tensor, size: int, split: str, tail: str, key: Key) -> list[Tensor]:
    """The positions of each group, in a random order. A tail is as long as is left."""
    order = torch.randperm(len(labels), generator=key.generator())
    piles = (
        [order]
        if split == "random"
        else [order[labels[order] == c] for c in sorted(set(labels.tolist()))]
    )
    groups = [group for pile in piles for group in torch.split(pile, size or len(pile))]
    return [g for g in groups if len(g) == size] if size and tail == "drop" else groups


def smallest(sizes: Sequence[int], size: int, split: str, tail: str) -> int:
    """The least number of samples in a group of clients of these sizes; of a class there may be a single one."""
    if size and tail == "drop":
        return size
    if split == "same-class":
        return 1
    return min(n if not size else n % size or size for n in sizes)


def averages(job: Job, groups: Sequence[Tensor], clip: float | None) -> tuple[Tensor, Tensor]:
    """The mean sample and the mean label of each group of a client; none of them for no group."""
    return means(job.data, job.classes, groups, clip)


def means(
    data: Data, classes: int, groups: Sequence[Tensor], clip: float | None = None
) -> tuple[Tensor, Tensor]:
    """The same of any data."""
    like, _ = _sums(data, classes, torch.zeros(1, dtype=torch.int64), None)
    x, y = like.new_empty(len(groups), *like.shape), like.new_empty(len(groups), classes)
    for n, group in enumerate(groups):
        parts = [_sums(data, classes, part, clip) for part in torch.split(group, CHUNK)]
        x[n], y[n] = (torch.stack(sums).sum(0) / len(group) for sums in zip(*parts, strict=True))
    return x, y


def _sums(data: Data, classes: int, positions: Tensor, clip: float | None) -> tuple[Tensor, Tensor]:
    x, y = data.batch(positions, train=False)
    return clipped(x, clip).sum(0), F.one_hot(y, classes).to(x.dtype).sum(0)


def clipped(x: Tensor, clip: float | None) -> Tensor:
    """Samples whose norm is at most so much; none leaves them."""
    if clip is None:
        return x
    norms: Tensor = torch.linalg.vector_norm(x.flatten(1), dim=1).clamp(min=clip)
    return x * (clip / norms).view(-1, *[1] * (x.dim() - 1))


def noisy(t: Tensor, deviation: float, key: Key) -> Tensor:
    """With Gaussian noise; 0 leaves it untouched. Whoever knows the run's seed can draw the noise again and take it off."""
    if not deviation:
        return t
    return t + deviation * torch.randn(t.shape, dtype=t.dtype, generator=key.generator()).to(
        t.device
    )


def probabilities(rows: Tensor) -> Tensor:
    """What is below 0 becomes 0, and a row adds up to 1 again: cross-entropy with a negative label has no lower bound."""
    rows = rows.clamp(min=0)
    rows = torch.where(rows.sum(1, keepdim=True) > 0, rows, 1.0)
    return rows / rows.sum(1, keepdim=True)


def pooled(answers: Sequence[Params], merge: int, key: Key) -> Params:
    """All averages in client order, or the averages of so many at a time, in a random order, the tail kept."""
    entries = {
        name: torch.cat([answer[name] for answer in answers]) for name in ("x", "y", "owner")
    }
    if not len(entries["owner"]):
        raise UserError(
            "no client has sent an average of its data: all have too few samples; lower least or size"
        )
    if merge == 1:
        return entries
    groups = torch.split(torch.randperm(len(entries["owner"]), generator=key.generator()), merge)
    x, y = (torch.stack([entries[name][group].mean(0) for group in groups]) for name in ("x", "y"))
    owners = [set(entries["owner"][group].tolist()) for group in groups]
    return {
        "x": x,
        "y": y,
        "owner": torch.tensor([min(found) if len(found) == 1 else -1 for found in owners]),
    }


def unsound(client: int, answer: Params) -> str | None:
    """What is wrong with a client's averages, or None; names and shapes are compared with other clients' elsewhere."""
    if set(answer) != {"x", "y", "owner"} or len({len(t) for t in answer.values()}) > 1:
        return "it is not made of as many samples x as labels y and owners"
    if not bool((answer["owner"] == client).all()):
        return "it names another client as the owner"
    rows = answer["y"]
    if not bool((rows >= 0).all() and ((rows.sum(1) - 1).abs() < 1e-3).all()):
        return "its labels are not rows of probabilities"
    return None


@dataclass(frozen=True)
class AveragedData:
    """The exchange a method asks for, and how it draws from what came of it."""

    exchange: Exchange
    exclude_self: bool = False

    def draw(self, job: Job, key: Key) -> tuple[Tensor, Tensor]:
        """One average and its label, for one batch."""
        return draw(job, key, self.exclude_self)


Itself = Annotated[
    bool,
    Param(
        "whether a client blends with averages of others only; false, as in the paper's algorithm, with its own too"
    ),
]


def exchanging(make: Callable[..., Method]) -> Callable[..., Method]:
    """A method's factory that takes the parameters of `averaged_data_exchange` and `exclude_self` beside its own, and gets them as `averaged`."""
    words = {p.name: p for p in inspect.signature(averaged_data_exchange).parameters.values()}
    words["exclude_self"] = inspect.Parameter(
        "exclude_self", inspect.Parameter.KEYWORD_ONLY, default=False
    )

    @functools.wraps(make)
    def made(**args: Any) -> Method:
        asked = {name: args.pop(name) for name in words.keys() & args.keys()}
        itself = asked.pop("exclude_self", False)
        return make(**args, averaged=AveragedData(averaged_data_exchange(**asked), itself))

    hints = {
        name: typing.get_type_hints(f, include_extras=True)
        for name, f in (("own", make), ("averaged", averaged_data_exchange))
    }
    made.__annotations__ = {**hints["averaged"], "exclude_self": Itself, **hints["own"]}
    own = [p for p in inspect.signature(make).parameters.values() if p.name != "averaged"]
    every = [p.replace(kind=p.KEYWORD_ONLY) for p in (*own, *words.values())]
    made.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
    return made
