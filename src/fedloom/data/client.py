"""Client data: cheap views of one shared split; a batch is an index selection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import torch
from torch import Tensor

from fedloom.core.checksum import samples_checksum
from fedloom.core.transfer import to_device
from fedloom.data.augment import Augment
from fedloom.data.dataset import Dataset, Split
from fedloom.data.parts import all_rows, part_sizes, row_type

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class Normaliser:
    """From stored samples to model inputs.

    With constants: x * scale + shift. Tables and float images: a cast to dtype. Text: unchanged.
    """

    dtype: torch.dtype | None  # None leaves text as integers
    scale: Tensor | None = None
    shift: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        if self.dtype is None:
            return x
        if self.scale is None or self.shift is None:
            return x.to(self.dtype)
        # One copy, then both steps in place: a second buffer would cost more than the arithmetic.
        return x.to(self.dtype, copy=True).mul_(self.scale).add_(self.shift)


def normaliser(
    dataset: Dataset, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> Normaliser:
    """(x/unit - mean)/std, folded into one scale and one shift per channel.

    The unit of bytes is 255, that of floats 1. Floats without constants are only cast.
    """
    if dataset.kind == "text":
        return Normaliser(None)
    is_float = dataset.train.x.is_floating_point()
    if is_float and not dataset.mean:
        return Normaliser(dtype)
    per_channel = (-1, *(1 for _ in dataset.shape[1:]))
    mean = torch.tensor(dataset.mean or (0.0,), dtype=torch.float64).view(per_channel)
    std = torch.tensor(dataset.std or (1.0,), dtype=torch.float64).view(per_channel)
    scale = 1 / (std if is_float else 255 * std)
    return Normaliser(dtype, scale.to(device, dtype), (-mean / std).to(device, dtype))


@dataclass(frozen=True, slots=True, eq=False)
class ClientData:
    """The samples of one client; position i is row rows[i] of the shared split."""

    split: Split
    rows: Tensor
    normalise: Normaliser
    augment: Augment | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def labels(self) -> Tensor:
        """The labels by position, on the CPU."""
        return self.split.y.index_select(0, self.rows).cpu()

    def class_counts(self, classes: int) -> Tensor:
        """The number of samples of each class."""
        return torch.bincount(self.labels, minlength=classes)

    def batch(
        self, positions: Tensor, generator: torch.Generator | None = None, train: bool = True
    ) -> Batch:
        """Inputs and labels at these positions, augmented if train and a generator is given."""
        rows = self.rows.index_select(0, to_device(positions, self.rows.device))
        x = self.split.x.index_select(0, rows)
        if train and generator is not None and self.augment is not None:
            x = self.augment(x, generator)
        return self.normalise(x), self.split.y.index_select(0, rows)

    def checksum(self) -> int:
        """Of the samples as the model gets them."""
        return samples_checksum(self)


@dataclass(frozen=True, eq=False)
class Clients(Sequence[ClientData]):
    """All clients over one split: one index tensor and each client's range in it.

    The views of single clients are made on demand.
    """

    split: Split
    rows: Tensor
    starts: np.ndarray
    stops: np.ndarray
    normalise: Normaliser
    augment: Augment | None = None

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def sizes(self) -> np.ndarray:
        """Samples per client."""
        sizes: np.ndarray = self.stops - self.starts
        return sizes

    @overload
    def __getitem__(self, index: int) -> ClientData: ...
    @overload
    def __getitem__(self, index: slice) -> Clients: ...
    def __getitem__(self, index: int | slice) -> ClientData | Clients:
        starts, stops = self.starts[index], self.stops[index]
        if isinstance(index, slice):
            return Clients(self.split, self.rows, starts, stops, self.normalise, self.augment)
        return ClientData(self.split, self.rows[starts:stops], self.normalise, self.augment)


def federate(
    dataset: Dataset,
    parts: Sequence[np.ndarray],
    augment: Augment | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Clients:
    """The training split of a data set as clients, each with its part of the rows."""
    return clients_of(dataset.train, parts, normaliser(dataset, dtype, device), augment, device)


def clients_of(
    split: Split,
    parts: Sequence[np.ndarray],
    normalise: Normaliser,
    augment: Augment | None = None,
    device: torch.device | str = "cpu",
) -> Clients:
    """A split as clients, each with its part of the rows; no object is created per client."""
    sizes = part_sizes(parts)
    stops = np.cumsum(sizes)
    starts = stops - sizes
    rows = torch.from_numpy(all_rows(parts).astype(row_type(len(split)), copy=False)).to(device)
    return Clients(place(split, device), rows, starts, stops, normalise, augment)


@dataclass(frozen=True)
class EvaluationBatches(Sequence[Batch]):
    """The samples of a split in order, normalised as in training and never augmented.

    Each batch is made when it is requested.
    """

    split: Split
    normalise: Normaliser
    batch: int = 100

    def __len__(self) -> int:
        return -(-len(self.split) // self.batch)

    @overload
    def __getitem__(self, index: int) -> Batch: ...
    @overload
    def __getitem__(self, index: slice) -> list[Batch]: ...
    def __getitem__(self, index: int | slice) -> Batch | list[Batch]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(index)
        rows = slice(index * self.batch, (index + 1) * self.batch)
        return self.normalise(self.split.x[rows]), self.split.y[rows]


@dataclass(frozen=True)
class OwnTestBatches(Sequence[Sequence[Batch]]):
    """The test samples of every client, in batches that are made when they are requested."""

    clients: Clients
    batch: int = 100

    def __len__(self) -> int:
        return len(self.clients)

    @overload
    def __getitem__(self, index: int) -> Sequence[Batch]: ...
    @overload
    def __getitem__(self, index: slice) -> list[Sequence[Batch]]: ...
    def __getitem__(self, index: int | slice) -> Sequence[Batch] | list[Sequence[Batch]]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        data = self.clients[index]
        positions = torch.split(torch.arange(len(data)), self.batch)
        return [data.batch(some, train=False) for some in positions if len(some)]


def place(split: Split, device: torch.device | str) -> Split:
    """The split on a device; shares memory if it is already there."""
    return Split(split.x.to(device), split.y.to(device), split.users)
