"""Measures of how heterogeneous a partition is, comparable across papers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedloom.data.dataset import Dataset
from fedloom.data.parts import all_rows, part_sizes

CLIENTS_AT_ONCE = 2**14  # that are counted in one table; there may be millions


@dataclass(frozen=True)
class Spread:
    """Summary of one quantity over all clients."""

    min: float
    median: float
    mean: float
    max: float

    @staticmethod
    def from_values(values: np.ndarray) -> Spread:
        """Summarise one value per client."""
        return Spread(
            float(values.min()), float(np.median(values)), float(values.mean()), float(values.max())
        )


@dataclass(frozen=True)
class Heterogeneity:
    """Statistics of a partition. Entropies and divergences in bits, total variation in [0, 1]."""

    clients: int
    classes: int
    samples: int
    size: Spread
    size_gini: float  # 0 if all are equal, towards 1 if one client has everything
    classes_per_client: Spread
    one_class_clients: int
    label_entropy: Spread
    global_label_entropy: float
    total_variation: Spread  # of a client's labels to those of all clients
    jensen_shannon: Spread
    imbalance_factor: float  # largest class over the smallest non-empty one
    absent_classes: int

    def as_json(self) -> dict[str, Any]:
        """The statistics as nested dictionaries of numbers."""
        return asdict(self)


def class_counts(labels: np.ndarray, parts: Sequence[np.ndarray], classes: int) -> np.ndarray:
    """Samples per client and class, (clients, classes)."""
    rows, sizes = all_rows(parts), part_sizes(parts)
    counts = np.zeros((len(parts), classes), dtype=np.int32)  # there may be a million clients
    start = 0
    for first in range(0, len(parts), CLIENTS_AT_ONCE):
        some = sizes[first : first + CLIENTS_AT_ONCE]
        own, table = rows[start : start + some.sum()], counts[first : first + len(some)]
        cells = np.repeat(np.arange(len(some)) * classes, some) + labels[own]
        table[:] = np.bincount(cells, minlength=table.size).reshape(table.shape)
        start += len(own)
    return counts


def client_counts(dataset: Dataset, parts: Sequence[np.ndarray]) -> np.ndarray:
    """Training samples per client and class; per client only if samples have no class."""
    if dataset.task == "classification":
        return class_counts(dataset.train.labels, parts, len(dataset.classes))
    return part_sizes(parts)[:, None]


def heterogeneity(counts: np.ndarray) -> Heterogeneity:
    """Statistics of (clients, classes) counts; empty clients have entropy and distances of 0."""
    sizes, totals = counts.sum(axis=1), counts.sum(axis=0)
    classes_held = (counts > 0).sum(axis=1)
    local = counts / np.maximum(sizes, 1)[:, None]
    overall = np.where(sizes[:, None] > 0, totals / max(totals.sum(), 1), 0.0)
    present = totals[totals > 0]
    return Heterogeneity(
        clients=len(counts),
        classes=counts.shape[1],
        samples=int(sizes.sum()),
        size=Spread.from_values(sizes),
        size_gini=gini(sizes),
        classes_per_client=Spread.from_values(classes_held),
        one_class_clients=int((classes_held == 1).sum()),
        label_entropy=Spread.from_values(entropy(local)),
        global_label_entropy=float(entropy(totals / max(totals.sum(), 1))),
        total_variation=Spread.from_values(np.abs(local - overall).sum(axis=1) / 2),
        jensen_shannon=Spread.from_values(jensen_shannon(local, overall)),
        imbalance_factor=float(present.max() / present.min()) if len(present) else 1.0,
        absent_classes=int((totals == 0).sum()),
    )


def entropy(p: np.ndarray) -> np.ndarray:
    """Entropy in bits over the last axis, with 0 log 0 = 0."""
    bits: np.ndarray = np.sum(p * -np.log2(np.where(p > 0, p, 1.0)), axis=-1)
    return bits


def jensen_shannon(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Jensen-Shannon divergence in bits, from 0 to 1, over the last axis."""
    bits: np.ndarray = np.maximum(entropy((p + q) / 2) - (entropy(p) + entropy(q)) / 2, 0.0)
    return bits


def gini(sizes: np.ndarray) -> float:
    """Gini coefficient: the mean absolute difference of two sizes, over twice the mean size."""
    ordered, n = np.sort(sizes), len(sizes)
    ranks = 2 * np.arange(1, n + 1) - n - 1
    return float((ranks * ordered).sum() / max(n * ordered.sum(), 1))
