"""The exchange of mean augmented federated learning (MAFL), used by FedMix and NaiveMix.

Before round 0, clients send averages of their data ("mashed" data in the paper), which all clients
then mix into their batches:

    x_g, y_g = 1/|G| sum_{i in G} (x_i, onehot y_i),   for each group G of M samples of a client

x is the network's input: normalised, never augmented. The server pools the averages and broadcasts
them as `shared["mashed"]`:

    x       (entries, *sample)     the averages
    y       (entries, classes)     their labels, rows of probabilities
    owner   (entries,)             the client it comes from; -1 if merged from several clients

exchange/averaged_data.py is how a method asks for them and draws from them.

Yoon et al., ICLR 2021, algorithm 1. The paper does not say what happens to the tail when M does not
divide a client's number of samples; here it is kept by default.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedloom.core.errors import UserError
from fedloom.core.job import Job
from fedloom.core.key import Key
from fedloom.core.method import Exchange
from fedloom.core.params import Params
from fedloom.core.spec import Param
from fedloom.core.transfer import to_device
from fedloom.exchange.group_means import group_means, smallest_group, split_into_groups
from fedloom.exchange.privacy import Release, check_budget, describe_guarantee

NAME = "mashed"  # the paper's term; random keys derive from it, so renaming would change every draw


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
