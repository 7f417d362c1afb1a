"""What partitions share: a frozen random stream, Dirichlet vectors, topping up small clients."""

from __future__ import annotations

import heapq
from typing import Annotated

import numpy as np

from fedloom.core.errors import UserError
from fedloom.core.key import Key
from fedloom.core.spec import Param
from fedloom.data.parts import Parts, Pieces, row_type

Alpha = Annotated[
    float,
    Param(
        "concentration; near 0 all mass falls on one entry, large values even it out (or use iid)",
        above=0,
        high=1e6,
    ),
]


def stream(
    key: Key,
    legacy_seed: Annotated[
        int | None,
        Param("NumPy seed of a published split, in place of the run's key", low=0, below=2**32),
    ] = None,
) -> np.random.RandomState:
    """The generator of a partition.

    It is a RandomState because NumPy's compatibility policy has frozen its seeding and its stream.
    """
    if legacy_seed is not None:
        return np.random.RandomState(legacy_seed)
    return np.random.RandomState(np.frombuffer(key.digest, dtype=">u4").astype(np.uint32))


def dirichlet_vector(rng: np.random.RandomState, alpha: float, size: int) -> np.ndarray:
    """One Dirichlet vector. If a tiny alpha underflows to 0/0, its limit: a random point mass."""
    with np.errstate(divide="ignore", invalid="ignore"):
        vector = rng.dirichlet(np.full(size, alpha))
    return vector if np.isfinite(vector).all() else point_mass(rng, size)


def point_mass(
    rng: np.random.RandomState, size: int, allowed: np.ndarray | None = None
) -> np.ndarray:
    """All mass on one random entry, among the allowed ones if a mask is given."""
    mass = np.zeros(size)
    mass[rng.choice(size if allowed is None else np.flatnonzero(allowed))] = 1.0
    return mass


def rows_by_class(labels: np.ndarray) -> Pieces:
    """The rows of every class that occurs, in the order of the data."""
    sizes = np.bincount(labels - labels.min())
    rows = np.argsort(labels, kind="stable").astype(row_type(len(labels)), copy=False)
    return Pieces.consecutive(rows, sizes[sizes > 0])


def check_enough_samples(samples: int, clients: int, min_size: int, scheme: str) -> None:
    """Raise if the data cannot give every client min_size samples."""
    needed = clients * min_size
    if needed > samples:
        max_clients = samples // min_size
        remedy = "use a smaller minimum"
        if max_clients:
            remedy = f"use at most {max_clients} clients or a smaller minimum"
        raise UserError(
            f"partition '{scheme}': {clients} clients with at least {min_size} samples each need "
            f"{needed} samples, but the data have {samples}; {remedy}"
        )


def top_up_small_clients(parts: Parts, min_size: int) -> Parts:
    """Give every client below min_size what it lacks, taken from the client largest at that moment.

    The samples carry the largest client's label skew with them. It ends because
    `check_enough_samples` has passed: while a client is too small, the largest exceeds min_size.
    """
    parts = list(parts)
    largest_first = [(-len(rows), client) for client, rows in enumerate(parts)]
    heapq.heapify(largest_first)
    for small in [client for client, rows in enumerate(parts) if len(rows) < min_size]:
        while (lacking := min_size - len(parts[small])) > 0:
            largest = largest_first[0][1]
            kept = max(len(parts[largest]) - lacking, min_size)
            parts[small] = np.append(parts[small], parts[largest][kept:])
            parts[largest] = parts[largest][:kept]
            heapq.heapreplace(largest_first, (-kept, largest))
    return parts
