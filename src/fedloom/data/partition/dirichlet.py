"""Label skew by one Dirichlet vector per class over the clients: FedAlign's capped form and FedAFA's rounded one."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from fedloom.core.errors import UserError
from fedloom.core.spec import Param
from fedloom.data.partition.draws import (
    Alpha,
    Parts,
    cut,
    enough,
    fill_up,
    one_place,
    rows_by_class,
    simplex,
)

MAX_REDRAWS = 1000
DRAW_BUDGET = (
    50_000_000  # numbers over all redraws together: a few seconds, whatever the number of clients
)


def dirichlet(
    labels: np.ndarray,
    clients: int,
    rng: np.random.RandomState,
    alpha: Alpha = 0.5,
    min_size: Annotated[
        int, Param("smallest client, reached by redrawing; 1 only forbids empty clients", low=1)
    ] = 10,
) -> Parts:
    """FedAlign's form (Mendieta et al., CVPR 2022, and FedML before it): who holds samples/clients already gets no more.

    The authors redraw until the smallest client has min_size samples, for ever if need be. Here the redraws end after
    MAX_REDRAWS or DRAW_BUDGET, and the last draw is repaired: a too small client takes what it lacks from the largest one.
    """
    enough(len(labels), clients, min_size, "dirichlet")
    groups = rows_by_class(labels)
    tries = min(MAX_REDRAWS, DRAW_BUDGET // (len(labels) + clients * len(groups)))
    for _ in range(max(1, tries)):
        rows, owners = _deal(groups, len(labels) / clients, clients, rng, alpha)
        sizes = np.bincount(owners, minlength=clients)
        if sizes.min() >= min_size:
            break
    parts = cut(rows[np.argsort(owners, kind="stable")], sizes)
    for part in parts:
        rng.shuffle(part)
    return fill_up(parts, min_size)


def _deal(
    groups: Parts, cap: float, clients: int, rng: np.random.RandomState, alpha: float
) -> tuple[np.ndarray, np.ndarray]:
    """One draw: the rows, class by class, and the client of each."""
    rows, owners = [], []
    sizes = np.zeros(clients, dtype=np.int64)
    for group in groups:
        rows.append(group.copy())
        rng.shuffle(rows[-1])
        share = simplex(rng, alpha, clients) * (sizes < cap)
        if (
            not share.sum() > 0
        ):  # all mass lay on full clients; some client is below the average as long as a class is left
            share = one_place(rng, clients, sizes < cap)
        stops = (np.cumsum(share / share.sum()) * len(group)).astype(np.int64)
        stops[-1] = len(group)
        given = np.diff(stops, prepend=0)
        sizes += given
        owners.append(np.repeat(np.arange(clients), given))
    return np.concatenate(rows), np.concatenate(owners)


def dirichlet_rounded(
    labels: np.ndarray,
    clients: int,
    rng: np.random.RandomState,
    alpha: Alpha = 0.5,
    min_size: Annotated[
        int,
        Param(
            "smallest client, which takes what it lacks from the largest; 0 leaves all as drawn",
            low=0,
        ),
    ] = 0,
) -> Parts:
    """FedAFA's form (Lu et al., ICASSP 2023): rounded shares, no redraw; the few samples lost to rounding are left out."""
    groups = rows_by_class(labels)
    shares = np.stack([simplex(rng, alpha, clients) for _ in groups])
    counts = rounded(np.array([len(g) for g in groups]), shares)
    enough(int(counts.sum()), clients, max(min_size, 1), "dirichlet-rounded")
    if not min_size:
        _refuse_empty(counts.sum(axis=1), alpha)
    piles = [
        cut(rng.permutation(rows), sizes) for rows, sizes in zip(groups, counts.T, strict=True)
    ]
    return fill_up([np.concatenate(pieces) for pieces in zip(*piles, strict=True)], min_size)


def rounded(class_counts: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Samples per client and class: half-even rounding of the share, in the order of the clients, while the class lasts."""
    asked = np.rint(class_counts[:, None] * shares).astype(np.int64)
    stops: np.ndarray = np.minimum(asked.cumsum(axis=1), class_counts[:, None])
    return np.diff(stops, prepend=0, axis=1).T


def _refuse_empty(sizes: np.ndarray, alpha: float) -> None:
    empty = np.flatnonzero(sizes == 0)
    if len(empty):
        shown = ", ".join(map(str, empty[:10])) + (", ..." if len(empty) > 10 else "")
        raise UserError(
            f"partition 'dirichlet-rounded': {len(empty)} of {len(sizes)} clients get no sample at alpha={alpha:g} ({shown}); "
            "set min_size to fill them up, or take a larger alpha, fewer clients or another seed"
        )
