"""Published splits: partitions that reproduce the authors' draw, whatever the seed of the run."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from fedloom.core.errors import UserError
from fedloom.data.partition.dirichlet import dirichlet_rounded
from fedloom.data.partition.draws import Alpha
from fedloom.data.parts import Parts

SEEDS: Mapping[str, int] = MappingProxyType({"fedafa": 1234})  # NumPy seeds, by partition name

FEDAFA_CLIENTS = 20
FEDAFA_SAMPLES = (12_406, 10_847)  # of CIFAR-10 and CIFAR-100 at an imbalance factor of 100


def fedafa(
    labels: np.ndarray, clients: int, rng: np.random.RandomState, alpha: Alpha = 0.2
) -> Parts:
    """The split of FedAFA (Lu et al., ICASSP 2023).

    CIFAR-10 or CIFAR-100 with longtail=100 among 20 clients, as with the authors' seed 0.
    """
    if clients != FEDAFA_CLIENTS or len(labels) not in FEDAFA_SAMPLES:
        raise UserError(
            "partition 'fedafa' splits 12,406 samples of CIFAR-10 or 10,847 of CIFAR-100 among "
            f"20 clients, but these are {len(labels):,} samples and {clients} clients; "
            "set data.longtail=100 and data.clients=20 on the whole data set, "
            "or use 'dirichlet-rounded', which draws in the same way"
        )
    return dirichlet_rounded(labels, clients, rng, alpha)
