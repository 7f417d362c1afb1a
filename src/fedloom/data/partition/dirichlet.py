"""Label skew by one Dirichlet vector per class over the clients.

Two forms: FedAlign's, which caps client sizes, and FedAFA's, which rounds the shares.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from fedloom.core.errors import UserError
from fedloom.core.spec import Param
from fedloom.data.partition.draws import (
    Alpha,
    check_enough_samples,
    dirichlet_vector,
    point_mass,
    rows_by_class,
    top_up_small_clients,
)
from fedloom.data.parts import Parts, Pieces

MAX_REDRAWS = 1000
# Numbers drawn over all redraws together: a few seconds, however many clients there are.
DRAW_BUDGET = 50_000_000


def dirichlet(
    labels: np.ndarray,
    clients: int,
    rng: np.random.RandomState,
    alpha: Alpha = 0.5,
    min_size: Annotated[
        int, Param("smallest client, reached by redrawing; 1 only forbids empty clients", low=1)
    ] = 10,
) -> Parts:
    """FedAlign's form (Mendieta et al., CVPR 2022, and FedML before it).

    A client that already holds samples/clients samples gets no more. The authors redraw until the
    smallest client has min_size samples, possibly forever. Here redrawing stops after 1000 draws
    (MAX_REDRAWS), sooner on large data (DRAW_BUDGET), and the last draw is repaired: a client that
    is too small takes what it lacks from the largest one.
    """
    check_enough_samples(len(labels), clients, min_size, "dirichlet")
    groups = rows_by_class(labels)
    tries = min(MAX_REDRAWS, DRAW_BUDGET // (len(labels) + clients * len(groups)))
    for _ in range(max(1, tries)):
        rows, owners = _draw_owners(groups, len(labels) / clients, clients, rng, alpha)
        sizes = np.bincount(owners, minlength=clients)
        if sizes.min() >= min_size:
            break
    parts = Pieces.consecutive(rows[np.argsort(owners, kind="stable")], sizes)
    for part in parts:
        rng.shuffle(part)
    return top_up_small_clients(parts, min_size)


def _draw_owners(
    groups: Parts, cap: float, clients: int, rng: np.random.RandomState, alpha: float
) -> tuple[np.ndarray, np.ndarray]:
    """One draw: the rows, class by class, and the client of each."""
    rows, owners = [], []
    sizes = np.zeros(clients, dtype=np.int64)
    for group in groups:
        rows.append(group.copy())
        rng.shuffle(rows[-1])
        share = dirichlet_vector(rng, alpha, clients) * (sizes < cap)
        if not share.sum() > 0:
            # All mass fell on full clients. While a class is left, some client is below the cap.
            share = point_mass(rng, clients, sizes < cap)
        stops = (np.cumsum(share / share.sum()) * len(group)).astype(np.int64)
        stops[-1] = len(group)
        counts = np.diff(stops, prepend=0)
        sizes += counts
        owners.append(np.repeat(np.arange(clients), counts))
    return np.concatenate(rows), np.concatenate(owners)


def dirichlet_rounded(
    labels: np.ndarray,
    clients: int,
    rng: np.random.RandomState,
    alpha: Alpha = 0.5,
    min_size: Annotated[
        int,
        Param(
            "smallest client, topped up from the largest; 0 leaves the draw as it is",
            low=0,
        ),
    ] = 0,
) -> Parts:
    """FedAFA's form (Lu et al., ICASSP 2023): rounded shares, no redraw.

    The few samples lost to rounding are left out.
    """
    groups = rows_by_class(labels)
    shares = np.stack([dirichlet_vector(rng, alpha, clients) for _ in groups])
    counts = rounded_counts(np.array([len(group) for group in groups]), shares)
    check_enough_samples(int(counts.sum()), clients, max(min_size, 1), "dirichlet-rounded")
    if not min_size:
        _check_no_empty_client(counts.sum(axis=1), alpha)
    pieces_by_class = [
        Pieces.consecutive(rng.permutation(rows), sizes)
        for rows, sizes in zip(groups, counts.T, strict=True)
    ]
    parts = [np.concatenate(pieces) for pieces in zip(*pieces_by_class, strict=True)]
    return top_up_small_clients(parts, min_size)


def rounded_counts(class_sizes: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Samples per client and class: the share rounded half to even.

    Clients take their samples in order until the class is used up.
    """
    requested = np.rint(class_sizes[:, None] * shares).astype(np.int64)
    stops: np.ndarray = np.minimum(requested.cumsum(axis=1), class_sizes[:, None])
    return np.diff(stops, prepend=0, axis=1).T


def _check_no_empty_client(sizes: np.ndarray, alpha: float) -> None:
    empty = np.flatnonzero(sizes == 0)
    if len(empty):
        shown = ", ".join(map(str, empty[:10])) + (", ..." if len(empty) > 10 else "")
        raise UserError(
            f"partition 'dirichlet-rounded': {len(empty)} of {len(sizes)} clients get no sample "
            f"at alpha={alpha:g} ({shown}); set min_size to top them up, "
            "or use a larger alpha, fewer clients or another seed"
        )
