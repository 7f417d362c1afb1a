"""Long-tailed data: class c of C keeps int(n_max * (1/IF)^(c/(C-1))) samples, from the head 0 to the tail C-1.

IF >= 1   imbalance factor, the head's count over the tail's; 1 keeps everything.
Counts are truncated, not rounded (12,406 samples of CIFAR-10 at IF 100); the ranks are the class numbers, unshuffled.
Cao et al., NeurIPS 2019; Lu et al. (FedAFA), ICASSP 2023.
"""

from __future__ import annotations

import numpy as np

from fedloom.core.errors import UserError


def counts(n_max: int, classes: int, factor: float) -> np.ndarray:
    """How many samples each class keeps.

    >>> counts(5000, 10, 100)
    array([5000, 2997, 1796, 1077,  645,  387,  232,  139,   83,   50])
    """
    last = max(classes - 1, 1)
    return np.array([int(n_max * (1 / factor) ** (c / last)) for c in range(classes)])


def subset(labels: np.ndarray, factor: float, rng: np.random.RandomState) -> np.ndarray:
    """The rows that are kept, class by class, drawn at random; a class that has fewer samples keeps them all."""
    if not factor >= 1:
        raise UserError(
            f"longtail={factor} must be at least 1 (head count over tail count; 1 keeps everything)"
        )
    if factor == 1:
        return np.arange(len(labels))
    kinds, sizes = np.unique(labels, return_counts=True)
    wanted = counts(int(sizes.max()), len(kinds), factor)
    if wanted[-1] < 1:
        raise UserError(
            f"longtail={factor:g} leaves no sample of class {kinds[-1]}; take a factor below {sizes.max()}"
        )
    rows = [np.flatnonzero(labels == kind) for kind in kinds]
    return np.concatenate(
        [_choose(r, int(min(n, len(r))), rng) for r, n in zip(rows, wanted, strict=True)]
    )


def _choose(rows: np.ndarray, size: int, rng: np.random.RandomState) -> np.ndarray:
    rng.shuffle(
        rows
    )  # needless before a choice, but the authors' stream has it, and their split is to come out
    return rng.choice(rows, size, replace=False)
