"""Splits that are in print: partitions which come out as their authors drew them, whatever the seed of the run."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from fedloom.core.errors import UserError
from fedloom.data.partition.dirichlet import dirichlet_rounded
from fedloom.data.partition.draws import Alpha, Parts

SEEDS: Mapping[str, int] = MappingProxyType(
    {"fedafa": 1234}
)  # numpy's, by the name of the partition
FEDAFA_CLIENTS, FEDAFA_SAMPLES = (
    20,
    (12_406, 10_847),
)  # of CIFAR-10 and of CIFAR-100, thinned to an imbalance of 100


def fedafa(
    labels: np.ndarray, clients: int, rng: np.random.RandomState, alpha: Alpha = 0.2
) -> Parts:
    """The split of FedAFA (Lu et al., ICASSP 2023): CIFAR-10 or -100 with longtail=100 among 20 clients, the authors' seed 0."""
    if clients != FEDAFA_CLIENTS or len(labels) not in FEDAFA_SAMPLES:
        raise UserError(
            f"partition 'fedafa' is that of 12,406 samples of CIFAR-10 or 10,847 of CIFAR-100 among 20 clients, and these are "
            f"{len(labels):,} among {clients}; set data.longtail=100 and data.clients=20 on the whole data set, "
            "or take 'dirichlet-rounded', which draws in the same way"
        )
    return dirichlet_rounded(labels, clients, rng, alpha)
