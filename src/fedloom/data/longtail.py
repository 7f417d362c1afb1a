"""Long-tailed data: class c of C keeps int(n_max * (1/IF)^(c/(C-1))) samples.

Class 0 is the head, class C-1 the tail.
IF >= 1   imbalance factor, the head's count over the tail's; 1 keeps everything.
Counts are truncated, not rounded (12,406 samples of CIFAR-10 at IF 100); classes are ranked by
their number, unshuffled.
Cao et al., NeurIPS 2019; Lu et al. (FedAFA), ICASSP 2023.
"""

from __future__ import annotations

import numpy as np

from fedloom.core.errors import UserError


def class_sizes(n_max: int, classes: int, factor: float) -> np.ndarray:
    """How many samples each class keeps.

    >>> class_sizes(5000, 10, 100)
    array([5000, 2997, 1796, 1077,  645,  387,  232,  139,   83,   50])
    """
    last = max(classes - 1, 1)
    return np.array([int(n_max * (1 / factor) ** (c / last)) for c in range(classes)])


def kept_rows(labels: np.ndarray, factor: float, rng: np.random.RandomState) -> np.ndarray | None:
    """The rows kept, class by class, drawn at random; None if that is all of them, in order.

    A class with fewer samples keeps them all.
    """
    if not factor >= 1:
        raise UserError(
            f"longtail={factor} must be at least 1 (head count over tail count; 1 keeps everything)"
        )
    if factor == 1:
        return None
    classes, available = np.unique(labels, return_counts=True)
    sizes = class_sizes(int(available.max()), len(classes), factor)
    if sizes[-1] < 1:
        raise UserError(
            f"longtail={factor:g} leaves no sample of class {classes[-1]}; "
            f"use a factor below {available.max()}"
        )
    kept = []
    for label, size in zip(classes, sizes, strict=True):
        rows = np.flatnonzero(labels == label)
        kept.append(_choose(rows, int(min(size, len(rows))), rng))
    return np.concatenate(kept)


def _choose(rows: np.ndarray, size: int, rng: np.random.RandomState) -> np.ndarray:
    # The shuffle is not needed, but the authors' stream has it, and their split must come out.
    rng.shuffle(rows)
    return rng.choice(rows, size, replace=False)
