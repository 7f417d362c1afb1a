"""The content of a data set and of a partition as checksums, to tell whether two are the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedloom.core.identity import DataIdentity
from fedloom.data.dataset import Dataset, Split
from fedloom.data.parts import all_rows, part_sizes

__all__ = [
    "DataIdentity",
    "data_identity",
    "identity_sha256",
    "json_sha256",
    "partition_sha256",
    "split_sha256",
]

BLOCK_BYTES = 1 << 24  # a block of a split that is not contiguous or not in RAM is copied
BLOCK_ROWS = 1 << 20  # numbers of rows, which are copied too


def data_identity(dataset: Dataset) -> DataIdentity:
    """The checksums of a data set in memory; the samples are read once and not copied as a whole.

    >>> split = Split(torch.zeros(2, 3), torch.tensor([0, 1]))
    >>> dataset = Dataset("a", "table", split, split, ("no", "yes"))
    >>> renamed = Dataset("b", "table", split, split, ("no", "maybe"))
    >>> data_identity(dataset).differences(data_identity(renamed))
    ['classes']
    """
    return DataIdentity(
        train=split_sha256(dataset.train),
        test=split_sha256(dataset.test),
        normalisation=json_sha256([dataset.kind, dataset.mean, dataset.std]),
        classes=json_sha256(dataset.classes),
        users=json_sha256(dataset.users),
        train_samples=len(dataset.train),
        test_samples=len(dataset.test),
    )


def identity_sha256(dataset: Dataset) -> str:
    """One checksum of all of the content of a data set."""
    return data_identity(dataset).sha256


def split_sha256(split: Split) -> str:
    """The checksum of the samples, labels and users of a split."""
    digest = hashlib.sha256()
    for name in ("x", "y", "users"):
        tensor: Tensor | None = getattr(split, name)
        header = None if tensor is None else [str(tensor.dtype), *tensor.shape]
        digest.update(_json_line([name, header]))
        if tensor is not None:
            for block in _blocks(tensor):
                digest.update(block.data)
    return digest.hexdigest()


def partition_sha256(parts: Sequence[np.ndarray]) -> str:
    """The checksum of a partition: which rows of the training split each client has, in order.

    >>> moved = [np.array([0]), np.array([1, 2])]
    >>> partition_sha256([np.array([0, 1]), np.array([2])]) == partition_sha256(moved)
    False
    """
    sizes, rows = part_sizes(parts).astype("<i8", copy=False), all_rows(parts)
    digest = hashlib.sha256(_json_line(["partition", len(parts), int(sizes.sum())]))
    digest.update(np.ascontiguousarray(sizes).data)
    for start in range(0, len(rows), BLOCK_ROWS):
        some = rows[start : start + BLOCK_ROWS]
        digest.update(np.ascontiguousarray(some, dtype="<i8").data)
    return digest.hexdigest()


def json_sha256(facts: Any) -> str:
    """The checksum of facts as JSON."""
    digest = hashlib.sha256(json.dumps(facts).encode())
    digest.update(b"\n")
    return digest.hexdigest()


def _json_line(facts: Any) -> bytes:
    return json.dumps(facts).encode() + b"\n"


def _blocks(tensor: Tensor) -> Iterator[np.ndarray]:
    """The bytes of a tensor in row order, block by block."""
    if not tensor.numel():
        return
    rows_per_block = max(1, BLOCK_BYTES * len(tensor) // max(1, tensor.nbytes))
    for start in range(0, len(tensor), rows_per_block):
        block = tensor[start : start + rows_per_block]
        yield block.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
