"""The exchange of mean augmented federated learning (MAFL), used by FedMix and NaiveMix.

Before round 0, clients send averages of their data ("mashed" data in the paper), which all clients
then mix into their batches:

    x_g, y_g = 1/|G| sum_{i in G} (x_i, onehot y_i),   for each group G of M samples of a client

x is the network's input: normalised, never augmented. The server pools the averages and broadcasts
them as `shared["mashed"]`:

    x       (entries, *sample)     the averages
    y       (entries, classes)     their labels, rows of probabilities
    owner   (entries,)             the client it comes from; -1 if merged from several clients

A method asks for the exchange with a decorator, which adds the parameters of
`averaged_data_exchange` to the method's own:

    @exchanging
    def naivemix(share: ... = 0.1, *, averaged: AveragedData) -> Method:
        ...  x_g, y_g = averaged.draw(step.job, step.key)
        return Method("naivemix", ..., prologue=(averaged.exchange,))

Yoon et al., ICLR 2021, algorithm 1. The paper does not say what happens to the tail when M does not
divide a client's number of samples; here it is kept by default.
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
from fedloom.core.transfer import to_device
from fedloom.exchange.privacy import Release, check_budget, describe_guarantee

NAME = "mashed"  # the paper's term; random keys derive from it, so renaming would change every draw
CHUNK = 1000  # samples normalised at a time


def averaged_data_exchange(
    size: Annotated[
        int, Param("samples per average; 0: one average of all the client's samples", low=0)
    ] = 0,
    split: Annotated[
        Literal["random", "same-class"],
        Param("which samples are averaged together: random ones, or ones of the same class"),
    ] = "random",
    tail: Annotated[
        Literal["keep", "drop"],
        Param("what to do with a client's last group if it is smaller than size"),
    ] = "keep",
    least: Annotated[
        int, Param("clients with fewer samples than this send nothing; 1: all clients send", low=1)
    ] = 1,
    merge: Annotated[
        int, Param("how many averages the server averages into one; 1: none are merged", low=1)
    ] = 1,
    noise: Annotated[
        float,
        Param("standard deviation of Gaussian noise on each average, in input units", low=0),
    ] = 0.0,
    label_noise: Annotated[
        float,
        Param(
            "standard deviation of Gaussian noise on each averaged label, "
            "which is then projected back to probabilities",
            low=0,
        ),
    ] = 0.0,
    clip: Annotated[
        float | None,
        Param("bound on each sample's L2 norm before averaging; none: no bound", above=0),
    ] = None,
    epsilon: Annotated[
        float | None,
        Param("limit on the exchange's privacy loss epsilon; none: no limit", above=0),
    ] = None,
    delta: Annotated[
        float,
        Param("delta of the exchange's (epsilon, delta) guarantee", above=0, below=1, fixed=True),
    ] = 1e-5,
) -> Exchange:
    """Build the exchange: what each client sends, how the server pools it, what is guaranteed.

    exchange/privacy.py explains the guarantee. An exchange beyond `epsilon` raises a UserError
    before anything is sent.
    """

    def client(job: Job, key: Key) -> Params:
        groups: list[Tensor] = []
        if len(job.data) >= least:
            groups = split_into_groups(job.data.labels, size, split, tail, key.fold("split"))
        x, y = group_means(job.data, job.classes, groups, clip)
        hidden = job.noise_key(key)
        x = noisy(x, noise, hidden.fold("noise"))
        y = noisy(y, label_noise, hidden.fold("label noise"))
        return {
            "x": x,
            "y": as_probabilities(y) if label_noise else y,
            "owner": torch.full((len(y),), job.client),
        }

    def notice(sizes: Sequence[int], releases: int) -> str:
        needed = max(least, size if tail == "drop" else 1)
        senders = [n for n in sizes if n >= needed]
        if not senders:
            raise UserError(
                f"no client has an average to send: the largest has {max(sizes)} samples; "
                "lower least or size"
            )
        release = Release(
            smallest_group(senders, size, split, tail),
            clip,
            noise,
            label_noise,
            public_labels=split == "same-class",
            releases=releases,
        )
        if epsilon is not None:
            check_budget(release, epsilon, delta)
        return describe_guarantee(release, delta)

    def server(answers: Sequence[Params], key: Key) -> Params:
        return pooled(answers, merge, key)

    return Exchange(NAME, client, server, answer_error, notice)


def draw(job: Job, key: Key, exclude_self: bool = False) -> tuple[Tensor, Tensor]:
    """Draw one average and its label uniformly; methods draw once per batch.

    exclude_self: only from other clients' averages, if there are any.
    """
    shared, allowed = job.shared[NAME], job.once(_allowed_entries, exclude_self)
    at = allowed[key.fold(NAME).below(len(allowed))]
    return shared["x"][at], shared["y"][at]


def _allowed_entries(job: Job, exclude_self: bool) -> list[int]:
    """The entries a client may draw; its own if there are no others."""
    owners = job.shared[NAME]["owner"].tolist()
    foreign = [i for i, owner in enumerate(owners) if owner != job.client]
    return foreign if exclude_self and foreign else list(range(len(owners)))


def split_into_groups(labels: Tensor, size: int, split: str, tail: str, key: Key) -> list[Tensor]:
    """Shuffle a client's samples and cut them into groups; returns the positions of each group.

    A kept tail group is smaller than `size`.
    """
    order = torch.randperm(len(labels), generator=key.generator())
    if split == "random":
        piles = [order]
    else:
        piles = [order[labels[order] == c] for c in sorted(set(labels.tolist()))]
    groups = [group for pile in piles for group in torch.split(pile, size or len(pile))]
    if size and tail == "drop":
        return [group for group in groups if len(group) == size]
    return groups


def smallest_group(sizes: Sequence[int], size: int, split: str, tail: str) -> int:
    """A lower bound on the size of a group, for clients with these numbers of samples.

    Exact for random groups. A group of one class may have a single sample.
    """
    if size and tail == "drop":
        return size
    if split == "same-class":
        return 1
    if not size:
        return min(sizes)
    return min(n % size or size for n in sizes)


def group_means(
    data: Data, classes: int, groups: Sequence[Tensor], clip: float | None = None
) -> tuple[Tensor, Tensor]:
    """The mean sample and the mean one-hot label of each group, with samples clipped first."""
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
    """The samples scaled down to L2 norm `clip` where theirs is larger; None leaves them."""
    if clip is None:
        return x
    norms: Tensor = torch.linalg.vector_norm(x.flatten(1), dim=1).clamp(min=clip)
    return x * (clip / norms).view(-1, *[1] * (x.dim() - 1))


def noisy(t: Tensor, deviation: float, key: Key) -> Tensor:
    """Add Gaussian noise; a deviation of 0 adds none.

    In a simulation the noise derives from the run's seed: anyone who knows the seed can reproduce
    and subtract it. A site of a deployment adds a secret of its own (`Job.noise_key`).
    """
    if not deviation:
        return t
    noise = torch.randn(t.shape, dtype=t.dtype, generator=key.generator())
    return t + deviation * to_device(noise, t.device)


def as_probabilities(rows: Tensor) -> Tensor:
    """Clamp negative entries to 0 and rescale each row to sum 1; a row of zeros becomes uniform.

    Cross-entropy with a negative label entry would have no lower bound.
    """
    rows = rows.clamp(min=0)
    rows = torch.where(rows.sum(1, keepdim=True) > 0, rows, 1.0)
    return rows / rows.sum(1, keepdim=True)


def pooled(answers: Sequence[Params], merge: int, key: Key) -> Params:
    """All averages in client order, or, with merge > 1, averages of `merge` of them at a time.

    Those are merged in random order; the last may consist of fewer.
    """
    entries = {
        name: torch.cat([answer[name] for answer in answers]) for name in ("x", "y", "owner")
    }
    if not len(entries["owner"]):
        raise UserError(
            "no client has sent an average of its data: all have too few samples; "
            "lower least or size"
        )
    if merge == 1:
        return entries
    groups = torch.split(torch.randperm(len(entries["owner"]), generator=key.generator()), merge)
    x, y = (torch.stack([entries[name][group].mean(0) for group in groups]) for name in ("x", "y"))
    owners = [_common_owner(entries["owner"][group]) for group in groups]
    return {"x": x, "y": y, "owner": torch.tensor(owners)}


def _common_owner(owners: Tensor) -> int:
    """The owner of all these entries; -1 if they have several."""
    distinct = set(owners.tolist())
    return min(distinct) if len(distinct) == 1 else -1


def answer_error(client: int, answer: Params) -> str | None:
    """What is wrong with a client's averages, or None.

    Their names and shapes are compared with the other clients' elsewhere.
    """
    if set(answer) != {"x", "y", "owner"} or len({len(t) for t in answer.values()}) > 1:
        return "it does not have as many samples x as labels y and owners"
    if not bool((answer["owner"] == client).all()):
        return "it names another client as the owner"
    rows = answer["y"]
    if not bool((rows >= 0).all() and ((rows.sum(1) - 1).abs() < 1e-3).all()):
        return "its labels are not rows of probabilities"
    return None


@dataclass(frozen=True)
class AveragedData:
    """The exchange a method asks for, and how the method draws from the pooled averages."""

    exchange: Exchange
    exclude_self: bool = False

    def draw(self, job: Job, key: Key) -> tuple[Tensor, Tensor]:
        """Draw one average and its label, for one batch."""
        return draw(job, key, self.exclude_self)


ExcludeSelf = Annotated[
    bool,
    Param(
        "whether a client mixes only with other clients' averages; "
        "false, as in the paper's algorithm: with its own too"
    ),
]


def exchanging(make: Callable[..., Method]) -> Callable[..., Method]:
    """Decorate a method's factory: add the parameters of the exchange to its own.

    The decorated factory also takes those of `averaged_data_exchange` and `exclude_self`; the
    original one receives them as an AveragedData, `averaged`.
    """
    added = {p.name: p for p in inspect.signature(averaged_data_exchange).parameters.values()}
    added["exclude_self"] = inspect.Parameter(
        "exclude_self", inspect.Parameter.KEYWORD_ONLY, default=False
    )

    @functools.wraps(make)
    def factory(**args: Any) -> Method:
        given = {name: args.pop(name) for name in added.keys() & args.keys()}
        exclude_self = given.pop("exclude_self", False)
        averaged = AveragedData(averaged_data_exchange(**given), exclude_self)
        return make(**args, averaged=averaged)

    # The signature and the annotations are what the command line, checks and documentation read.
    factory.__annotations__ = {
        **typing.get_type_hints(averaged_data_exchange, include_extras=True),
        "exclude_self": ExcludeSelf,
        **typing.get_type_hints(make, include_extras=True),
    }
    own = [p for p in inspect.signature(make).parameters.values() if p.name != "averaged"]
    keyword_only = [p.replace(kind=p.KEYWORD_ONLY) for p in (*own, *added.values())]
    factory.__signature__ = inspect.Signature(keyword_only)  # type: ignore[attr-defined]
    return factory
