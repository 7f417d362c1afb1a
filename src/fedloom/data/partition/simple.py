"""Partitions without a Dirichlet over labels: even, by shards, by classes, by size, by natural users."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from fedloom.core.errors import UserError
from fedloom.core.spec import Param
from fedloom.data.partition.draws import Alpha, Parts, cut, enough, fill_up, rows_by_class, simplex


def iid(labels: np.ndarray, clients: int, rng: np.random.RandomState) -> Parts:
    """Shuffled and cut into sizes that differ by at most one."""
    enough(len(labels), clients, 1, "iid")
    return np.array_split(rng.permutation(len(labels)), clients)


def shards(
    labels: np.ndarray,
    clients: int,
    rng: np.random.RandomState,
    shards: Annotated[
        int, Param("pieces of the label-sorted data per client; many pieces approach iid", low=1)
    ] = 2,
) -> Parts:
    """McMahan et al., AISTATS 2017: sort by label, cut into equal shards, deal the same number to everyone."""
    enough(len(labels), clients, shards, "shards")
    ordered = np.concatenate([rng.permutation(rows) for rows in rows_by_class(labels)])
    pieces = np.array_split(ordered, clients * shards)
    hands = rng.permutation(clients * shards).reshape(clients, shards)
    return [np.concatenate([pieces[p] for p in hand]) for hand in hands]


def classes(
    labels: np.ndarray,
    clients: int,
    rng: np.random.RandomState,
    classes: Annotated[
        int, Param("distinct classes of every client; all of them approaches iid", low=1)
    ] = 2,
) -> Parts:
    """Exactly so many distinct classes for every client, each class split evenly over its holders; nothing is dropped.

    FedMix (Yoon et al., ICLR 2021) says no more than "2 classes per client". Slots that do not divide by the number of
    classes go to random classes, one more each.
    """
    groups = rows_by_class(labels)
    _check_slots(groups, clients, classes)
    slots = np.full(len(groups), clients * classes // len(groups))
    slots[rng.permutation(len(groups))[: clients * classes % len(groups)]] += 1
    _check_holders(groups, slots, labels)
    piles = [
        np.array_split(rng.permutation(rows), n) for rows, n in zip(groups, slots, strict=True)
    ]
    hands = [_hand(rng, slots, classes) for _ in range(clients)]
    return [np.concatenate([piles[c].pop() for c in hand]) for hand in hands]


def _hand(rng: np.random.RandomState, slots: np.ndarray, size: int) -> np.ndarray:
    """Distinct classes with the most slots left, ties at random; slots thus never differ by more than one, so none runs dry."""
    hand = np.argsort(-(slots + rng.random_sample(len(slots))), kind="stable")[:size]
    slots[hand] -= 1
    return hand


def _check_slots(groups: Parts, clients: int, classes: int) -> None:
    if classes > len(groups):
        raise UserError(
            f"partition 'classes': classes={classes} is more than the {len(groups)} classes of the data; take at most {len(groups)}"
        )
    if clients * classes < len(groups):
        raise UserError(
            f"partition 'classes': {clients} clients with {classes} classes each leave some of the {len(groups)} classes "
            f"without a client; take classes={-(-len(groups) // clients)} or more clients"
        )


def _check_holders(groups: Parts, slots: np.ndarray, labels: np.ndarray) -> None:
    for rows, holders in zip(groups, slots, strict=True):
        if len(rows) < holders:
            raise UserError(
                f"partition 'classes': class {labels[rows[0]]} has {len(rows)} samples for {holders} clients; "
                "take fewer clients or fewer classes per client"
            )


def quantity(
    labels: np.ndarray,
    clients: int,
    rng: np.random.RandomState,
    alpha: Alpha = 0.5,
    min_size: Annotated[int, Param("smallest client, filled up from the largest", low=1)] = 1,
) -> Parts:
    """Sizes from one Dirichlet vector over the clients, labels at random."""
    enough(len(labels), clients, min_size, "quantity")
    stops = (np.cumsum(simplex(rng, alpha, clients)) * len(labels)).astype(np.int64)
    stops[-1] = len(labels)
    return fill_up(cut(rng.permutation(len(labels)), np.diff(stops, prepend=0)), min_size)


def user(
    labels: np.ndarray,
    clients: int,
    rng: np.random.RandomState,
    users: np.ndarray | None,
    min_size: Annotated[
        int, Param("users with fewer samples are left out; 1 keeps everyone", low=1)
    ] = 1,
) -> Parts:
    """One client per natural user, in the order of their numbers; fewer `clients` than users are drawn, 0 is everyone."""
    if users is None:
        raise UserError(
            "partition 'user': these data do not say whose sample is whose; choose another partition, such as iid"
        )
    parts = [rows for rows in rows_by_class(users) if len(rows) >= min_size]
    if clients > len(parts) or not parts:
        raise UserError(
            f"partition 'user': clients={clients}, but {len(parts)} users have at least {min_size} samples; "
            f"take {f'at most {len(parts)} clients, or clients=0 (everyone)' if parts else 'a smaller min_size'}"
        )
    drawn = rng.permutation(len(parts))[: clients or len(parts)]
    return [parts[u] for u in np.sort(drawn)]
