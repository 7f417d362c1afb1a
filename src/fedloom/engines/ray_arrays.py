"""Tensors as NumPy arrays, which is how they are in the store of a Ray cluster."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

Arrays = dict[str, np.ndarray]


def as_arrays(tensors: Mapping[str, Tensor]) -> Arrays:
    """Views of the tensors' memory."""
    return {name: t.numpy() for name, t in tensors.items()}


def as_tensors(arrays: Arrays) -> dict[str, Tensor]:
    """Views of Ray's memory. It is read-only, of which torch warns; nothing is written to it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: torch.from_numpy(a) for name, a in arrays.items()}


def nested_tensors(groups: Mapping[str, Arrays]) -> dict[str, dict[str, Tensor]]:
    """The same for every group."""
    return {name: as_tensors(arrays) for name, arrays in groups.items()}
