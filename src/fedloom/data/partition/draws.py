"""What the partitioners draw from and share: a frozen stream, safe Dirichlet vectors, and a repair of small clients."""

from __future__ import annotations

import heapq
from typing import Annotated

import numpy as np

from fedloom.core.errors import UserError
from fedloom.core.key import Key
from fedloom.core.spec import Param

Parts = list[np.ndarray]

Alpha = Annotated[
    float,
    Param(
        "concentration; towards 0 all mass on one place, large values even it out (or use iid)",
        above=0,
        high=1e6,
    ),
]


def stream(
    key: Key,
    legacy_seed: Annotated[
        int | None,
        Param("the numpy seed of a published split, in place of the run's key", low=0, below=2**32),
    ] = None,
) -> np.random.RandomState:
    """The generator of a partition: RandomState, because numpy's compatibility policy froze its seeding and its stream."""
    if legacy_seed is not None:
        return np.random.RandomState(legacy_seed)
    return np.random.RandomState(np.frombuffer(key.digest, dtype=">u4").astype(np.uint32))


def simplex(rng: np.random.RandomState, alpha: float, places: int) -> np.ndarray:
    """One Dirichlet vector. Where a tiny alpha underflows to 0/0, the limit: all mass on one random place."""
    with np.errstate(divide="ignore", invalid="ignore"):
        drawn = rng.dirichlet(np.full(places, alpha))
    return drawn if np.isfinite(drawn).all() else one_place(rng, places)


def one_place(
    rng: np.random.RandomState, places: int, allowed: np.ndarray | None = None
) -> np.ndarray:
    """All mass on one random place, of the allowed ones if given."""
    mass = np.zeros(places)
    mass[rng.choice(places if allowed is None else np.flatnonzero(allowed))] = 1.0
    return mass


def rows_by_class(labels: np.ndarray) -> Parts:
    """The rows of every class that occurs, in the order of the data."""
    _, counts = np.unique(labels, return_counts=True)
    return cut(np.argsort(labels, kind="stable"), counts)


def cut(rows: np.ndarray, sizes: np.ndarray) -> Parts:
    """Consecutive pieces of the given sizes; what lies behind the last one is left out."""
    stops = np.cumsum(sizes)
    return [rows[stop - size : stop] for size, stop in zip(sizes, stops, strict=True)]


def enough(samples: int, clients: int, min_size: int, scheme: str) -> None:
    """Refuse by counting what no draw could fulfil."""
    if clients * min_size > samples:
        most = samples // min_size
        remedy = (
            f"take at most {most} clients or a smaller minimum"
            if most
            else "take a smaller minimum"
        )
        raise UserError(
            f"partition '{scheme}': {clients} clients with at least {min_size} samples each need {clients * min_size} samples, "
            f"but the data have {samples}; {remedy}"
        )


def fill_up(parts: Parts, min_size: int) -> Parts:
    """Every too small client takes what it lacks from the largest one of that moment, and with it that client's label skew.

    `enough` ensures an end: while a client is too small, the largest has more than min_size.
    """
    parts = list(parts)
    heap = [(-len(rows), client) for client, rows in enumerate(parts)]
    heapq.heapify(heap)
    for poor in [c for c, rows in enumerate(parts) if len(rows) < min_size]:
        while (lacking := min_size - len(parts[poor])) > 0:
            rich = heap[0][1]
            keep = max(len(parts[rich]) - lacking, min_size)
            parts[poor] = np.append(parts[poor], parts[rich][keep:])
            parts[rich] = parts[rich][:keep]
            heapq.heapreplace(heap, (-keep, rich))
    return parts
