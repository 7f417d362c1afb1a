"""Partitions without a Dirichlet over labels: even, by shards, by classes, by size, by user."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from fedloom.core.errors import UserError
from fedloom.core.spec import Param
from fedloom.data.partition.draws import (
    Alpha,
    check_enough_samples,
    dirichlet_vector,
    rows_by_class,
    top_up_small_clients,
)
from fedloom.data.parts import Parts, Pieces, part_sizes


def iid(labels: np.ndarray, clients: int, rng: np.random.RandomState) -> Parts:
    """Shuffled and cut into sizes that differ by at most one."""
    check_enough_samples(len(labels), clients, 1, "iid")
    return np.array_split(rng.permutation(len(labels)), clients)


def shards(
    labels: np.ndarray,
    clients: int,
    rng: np.random.RandomState,
    shards: Annotated[
        int, Param("shards of the label-sorted data per client; many approach iid", low=1)
    ] = 2,
) -> Parts:
    """McMahan et al., AISTATS 2017: sort by label, cut into equal shards, assign them evenly."""
    check_enough_samples(len(labels), clients, shards, "shards")
    ordered = np.concatenate([rng.permutation(rows) for rows in rows_by_class(labels)])
    pieces = np.array_split(ordered, clients * shards)
    assignment = rng.permutation(clients * shards).reshape(clients, shards)
    return [np.concatenate([pieces[shard] for shard in assigned]) for assigned in assignment]


def classes(
    labels: np.ndarray,
    clients: int,
    rng: np.random.RandomState,
    classes: Annotated[
        int, Param("distinct classes per client; all of them approaches iid", low=1)
    ] = 2,
) -> Parts:
    """Exactly this many classes per client.

    Each class is split evenly over the clients that hold it; no sample is dropped. FedMix (Yoon et
    al., ICLR 2021) says no more than "2 classes per client". If clients x classes is not a
    multiple of the number of classes, random classes get one more client each.
    """
    groups = rows_by_class(labels)
    _check_class_count(groups, clients, classes)
    slots = np.full(len(groups), clients * classes // len(groups))
    slots[rng.permutation(len(groups))[: clients * classes % len(groups)]] += 1
    _check_class_sizes(groups, slots, labels)
    pieces = [
        np.array_split(rng.permutation(rows), count)
        for rows, count in zip(groups, slots, strict=True)
    ]
    chosen = [_choose_classes(rng, slots, classes) for _ in range(clients)]
    return [np.concatenate([pieces[c].pop() for c in client]) for client in chosen]


def _choose_classes(rng: np.random.RandomState, slots: np.ndarray, count: int) -> np.ndarray:
    """Distinct classes with the most free slots, ties broken at random; takes one slot of each.

    Free slots thus never differ by more than one between classes, so none runs out early.
    """
    chosen = np.argsort(-(slots + rng.random_sample(len(slots))), kind="stable")[:count]
    slots[chosen] -= 1
    return chosen


def _check_class_count(groups: Parts, clients: int, classes: int) -> None:
    if classes > len(groups):
        raise UserError(
            f"partition 'classes': classes={classes} is more than the {len(groups)} classes "
            f"of the data; use at most {len(groups)}"
        )
    if clients * classes < len(groups):
        raise UserError(
            f"partition 'classes': {clients} clients with {classes} classes each leave some of "
            f"the {len(groups)} classes without a client; "
            f"use classes={-(-len(groups) // clients)} or more clients"
        )


def _check_class_sizes(groups: Parts, slots: np.ndarray, labels: np.ndarray) -> None:
    for rows, holders in zip(groups, slots, strict=True):
        if len(rows) < holders:
            raise UserError(
                f"partition 'classes': class {labels[rows[0]]} has {len(rows)} samples for "
                f"{holders} clients; use fewer clients or fewer classes per client"
            )


def quantity(
    labels: np.ndarray,
    clients: int,
    rng: np.random.RandomState,
    alpha: Alpha = 0.5,
    min_size: Annotated[int, Param("smallest client, topped up from the largest", low=1)] = 1,
) -> Parts:
    """Sizes from one Dirichlet vector over the clients, labels at random."""
    check_enough_samples(len(labels), clients, min_size, "quantity")
    shares = dirichlet_vector(rng, alpha, clients)
    stops = (np.cumsum(shares) * len(labels)).astype(np.int64)
    stops[-1] = len(labels)
    parts = Pieces.consecutive(rng.permutation(len(labels)), np.diff(stops, prepend=0))
    return top_up_small_clients(parts, min_size)


def user(
    labels: np.ndarray,
    clients: int,
    rng: np.random.RandomState,
    users: np.ndarray | None,
    min_size: Annotated[
        int, Param("users with fewer samples are left out; 1 keeps everyone", low=1)
    ] = 1,
) -> Parts:
    """One client per natural user, in the order of their numbers.

    If `clients` is smaller than the number of users, that many are drawn; 0 takes everyone.
    """
    if users is None:
        raise UserError(
            "partition 'user': the data have no user ids; use another partition, such as iid"
        )
    parts = rows_by_class(users)
    enough = np.flatnonzero(part_sizes(parts) >= min_size)
    if clients > len(enough) or not len(enough):
        remedy = "use a smaller min_size"
        if len(enough):
            remedy = f"use at most {len(enough)} clients, or clients=0 (everyone)"
        raise UserError(
            f"partition 'user': clients={clients}, but {len(enough)} users have at least "
            f"{min_size} samples; {remedy}"
        )
    drawn = rng.permutation(len(enough))[: clients or len(enough)]
    return parts.chosen(enough[np.sort(drawn)])
