"""Mean and standard deviation per channel: of bytes in units of [0, 1], of floats in their own.

Those of the papers for known data sets of images, otherwise measured on the training split.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

Constants = tuple[tuple[float, ...], tuple[float, ...]]

# cifar10 and cifar100 are FedAlign's. FedAFA's presets set those of its authors.
CONSTANTS: Mapping[str, Constants] = MappingProxyType(
    {
        "mnist": ((0.1307,), (0.3081,)),
        "fashion-mnist": ((0.2860,), (0.3530,)),
        "cifar10": ((0.49139968, 0.48215827, 0.44653124), (0.24703233, 0.24348505, 0.26158768)),
        "cifar100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
        "tiny-imagenet": ((0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821)),
    }
)


def constants_for(name: str, samples: np.ndarray) -> Constants:
    """The published constants of that name if these are such images, else measured ones."""
    published = CONSTANTS.get(name.lower())
    is_image = samples.ndim == 4
    if is_image and published is not None and len(published[0]) == samples.shape[1]:
        return published
    return measured_constants(samples)


def measured_constants(samples: np.ndarray) -> Constants:
    """Mean and std of each channel of samples (N,C,...); for bytes exact, from the histogram.

    A channel with a single value gets std 1.

    >>> measured_constants(np.array([0, 255], dtype=np.uint8).reshape(2, 1, 1, 1))
    ((0.5,), (0.5,))
    """
    moments = _byte_moments if samples.dtype == np.uint8 else _float_moments
    channels = [moments(samples[:, channel]) for channel in range(samples.shape[1])]
    return tuple(mean for mean, _ in channels), tuple(std or 1.0 for _, std in channels)


def _byte_moments(values: np.ndarray) -> tuple[float, float]:
    levels = np.arange(256) / 255
    share = np.bincount(values.ravel(), minlength=256) / values.size
    mean = float(share @ levels)
    return mean, float(np.sqrt(share @ (levels - mean) ** 2))


def _float_moments(values: np.ndarray) -> tuple[float, float]:
    is_constant = bool((values == values.flat[0]).all())  # rounding may give it a tiny std
    std = 0.0 if is_constant else float(values.std(dtype=np.float64))
    return float(values.mean(dtype=np.float64)), std
