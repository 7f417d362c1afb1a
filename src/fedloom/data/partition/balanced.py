"""Label skew at equal sizes: FedMLB's Dirichlet vector per client over the classes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from fedloom.data.partition.draws import (
    Alpha,
    check_enough_samples,
    dirichlet_vector,
    rows_by_class,
)
from fedloom.data.parts import Parts

# (weight of each class, number of samples) -> rows that no client holds yet
Draw = Callable[[np.ndarray, int], np.ndarray]

# A class of weight 0 is drawn last instead of never: the last clients must take what is left, and
# torch.multinomial, asked for more samples than have weight, silently returns samples that are
# already taken.
MIN_WEIGHT = 1e-200


def dirichlet_balanced(
    labels: np.ndarray,
    clients: int,
    rng: np.random.RandomState,
    generator: torch.Generator | None,
    alpha: Alpha = 0.3,
) -> Parts:
    """FedMLB's form (Kim et al., ICML 2022).

    Each client draws floor(samples/clients) free samples, weighted by its class probabilities. All
    clients have exactly the same size, and the later ones are pushed towards what is left. With a
    generator (a published split) samples are drawn by torch.multinomial as the authors do, in time
    clients x samples. Without one the same distribution is drawn class by class, in time
    classes x samples and from NumPy's frozen stream.
    """
    check_enough_samples(len(labels), clients, 1, "dirichlet-balanced")
    classes, class_index = np.unique(labels, return_inverse=True)
    if generator is None:
        draw = _draw_by_class(labels, rng)
    else:
        draw = _draw_by_sample(class_index, generator)
    size = len(labels) // clients
    parts = []
    for _ in range(clients):
        weights = np.maximum(dirichlet_vector(rng, alpha, len(classes)), MIN_WEIGHT)
        parts.append(draw(weights, size))
    for rows in parts:
        rng.shuffle(rows)
    return parts


def _draw_by_sample(class_index: np.ndarray, generator: torch.Generator) -> Draw:
    is_free = np.ones(len(class_index), dtype=bool)

    def draw(weights: np.ndarray, size: int) -> np.ndarray:
        sample_weights = torch.from_numpy(weights[class_index] * is_free)
        rows = torch.multinomial(sample_weights, size, generator=generator).numpy()
        is_free[rows] = False
        return rows

    return draw


def _draw_by_class(labels: np.ndarray, rng: np.random.RandomState) -> Draw:
    shuffled = [rng.permutation(rows) for rows in rows_by_class(labels)]
    left = np.array([len(rows) for rows in shuffled])

    def draw(weights: np.ndarray, size: int) -> np.ndarray:
        counts = first_arrivals(rng, weights, left, size)
        taken = [
            rows[stop - count : stop]
            for rows, stop, count in zip(shuffled, left, counts, strict=True)
            if count
        ]
        np.subtract(left, counts, out=left)
        return np.concatenate(taken)

    return draw


def first_arrivals(
    rng: np.random.RandomState, weights: np.ndarray, left: np.ndarray, size: int
) -> np.ndarray:
    """How many samples of each class are among `size` weighted draws without replacement.

    Such draws are a race: each sample arrives after an exponential time of rate weights[class],
    and the first `size` win. Within a class only the arrival times matter, and the gap before the
    next one is exponential with the summed rate of those left.
    """
    depth = min(size, int(left.max()))
    rates = weights[:, None] * np.maximum(left[:, None] - np.arange(depth), 0)
    with np.errstate(divide="ignore"):
        times = np.cumsum(rng.standard_exponential(rates.shape) / rates, axis=1)
    winners = np.argpartition(times, size - 1, axis=None)[:size]
    return np.bincount(winners // depth, minlength=len(left))
