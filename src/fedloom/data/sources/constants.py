"""Mean and standard deviation per channel, in units of [0, 1].

Those of the papers for known data sets, otherwise measured on the training split.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from fedloom.core.errors import unknown_name
from fedloom.data.dataset import Dataset

Constants = tuple[tuple[float, ...], tuple[float, ...]]

# cifar10 and cifar100 are FedAlign's. FedMLB and FedAFA each use one triple for both sets.
CONSTANTS: Mapping[str, Constants] = MappingProxyType(
    {
        "mnist": ((0.1307,), (0.3081,)),
        "fashion-mnist": ((0.2860,), (0.3530,)),
        "cifar10": ((0.49139968, 0.48215827, 0.44653124), (0.24703233, 0.24348505, 0.26158768)),
        "cifar100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
        "cifar-fedmlb": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
        "cifar-fedafa": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
        "tiny-imagenet": ((0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821)),
    }
)


def constants_for(name: str, images: np.ndarray) -> Constants:
    """The published constants of that name if the channels match, else those of the images."""
    published = CONSTANTS.get(name.lower())
    if published is not None and len(published[0]) == images.shape[1]:
        return published
    return measured_constants(images)


def measured_constants(images: np.ndarray) -> Constants:
    """Mean and std of each channel of uint8 images (N,C,H,W), exact from its histogram.

    A channel with a single value gets std 1.

    >>> measured_constants(np.array([0, 255], dtype=np.uint8).reshape(2, 1, 1, 1))
    ((0.5,), (0.5,))
    """
    levels = np.arange(256) / 255
    means, stds = [], []
    for channel in range(images.shape[1]):
        values = images[:, channel].ravel()
        share = np.bincount(values, minlength=256) / values.size
        mean = float(share @ levels)
        means.append(mean)
        stds.append(float(np.sqrt(share @ (levels - mean) ** 2)) or 1.0)
    return tuple(means), tuple(stds)


def with_constants(dataset: Dataset, name: str) -> Dataset:
    """The data set with the published constants of that name."""
    if name not in CONSTANTS:
        raise unknown_name("constants", name, CONSTANTS)
    mean, std = CONSTANTS[name]
    return replace(dataset, mean=mean, std=std)
