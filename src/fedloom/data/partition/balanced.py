"""Label skew at equal sizes: FedMLB's Dirichlet vector per client over the classes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from fedloom.data.partition.draws import Alpha, Parts, enough, rows_by_class, simplex

Draw = Callable[
    [np.ndarray, int], np.ndarray
]  # (weight of each class, how many) -> rows that nobody holds yet

# A class of weight 0 comes last instead of never: the last clients must take what is left, and torch.multinomial,
# asked for more samples than have weight, silently hands out samples that are already taken.
LEAST_WEIGHT = 1e-200


def dirichlet_balanced(
    labels: np.ndarray,
    clients: int,
    rng: np.random.RandomState,
    generator: torch.Generator | None,
    alpha: Alpha = 0.3,
) -> Parts:
    """FedMLB's form (Kim et al., ICML 2022): each client draws floor(samples/clients) free samples, weighted by its classes.

    All clients have exactly the same size, and the later ones are pushed towards what is left. With a generator (a
    published split) samples are drawn by torch.multinomial as the authors do, in time clients x samples; without one the
    same distribution is drawn class by class, in time classes x samples and from numpy's frozen stream.
    """
    enough(len(labels), clients, 1, "dirichlet-balanced")
    kinds, which = np.unique(labels, return_inverse=True)
    draw = _by_class(labels, rng) if generator is None else _by_sample(which, generator)
    size = len(labels) // clients
    parts = [
        draw(np.maximum(simplex(rng, alpha, len(kinds)), LEAST_WEIGHT), size)
        for _ in range(clients)
    ]
    for rows in parts:
        rng.shuffle(rows)
    return parts


def _by_sample(which: np.ndarray, generator: torch.Generator) -> Draw:
    free = np.ones(len(which), dtype=bool)

    def draw(weights: np.ndarray, size: int) -> np.ndarray:
        chosen = torch.multinomial(
            torch.from_numpy(weights[which] * free), size, generator=generator
        ).numpy()
        free[chosen] = False
        return chosen

    return draw


def _by_class(labels: np.ndarray, rng: np.random.RandomState) -> Draw:
    piles = [rng.permutation(rows) for rows in rows_by_class(labels)]
    left = np.array([len(pile) for pile in piles])

    def draw(weights: np.ndarray, size: int) -> np.ndarray:
        counts = first_arrivals(rng, weights, left, size)
        taken = [pile[n - k : n] for pile, n, k in zip(piles, left, counts, strict=True) if k]
        np.subtract(left, counts, out=left)
        return np.concatenate(taken)

    return draw


def first_arrivals(
    rng: np.random.RandomState, weights: np.ndarray, left: np.ndarray, size: int
) -> np.ndarray:
    """How many of each class are among `size` weighted draws without replacement.

    Such draws are a race: each sample arrives after an exponential time of rate weights[class], the first `size` win. Of a
    class only the arrivals matter, and the gap before the next one is exponential with the summed rate of those left.
    """
    depth = min(size, int(left.max()))
    rates = weights[:, None] * np.maximum(left[:, None] - np.arange(depth), 0)
    with np.errstate(divide="ignore"):
        times = np.cumsum(rng.standard_exponential(rates.shape) / rates, axis=1)
    winners = np.argpartition(times, size - 1, axis=None)[:size]
    return np.bincount(winners // depth, minlength=len(left))
