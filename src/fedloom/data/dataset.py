"""A data set in memory: a training and a test split as tensors, and facts about them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from torch import Tensor

Kind = Literal["image", "text", "table", "signal", "volume"]


@dataclass(frozen=True)
class Split:
    """Samples in memory.

    x is uint8 (N,C,H,W) for images, int64 (N,T) for text, float32 (N,F) for tables, float32 (N,C,L)
    for signals, and uint8 or float32 (N,C,D,H,W) for volumes. Images given from Python may also be
    float32 (N,C,H,W). y is int64 (N,) for classification, float32 (N,) or (N,k) for regression,
    float32 (N,L) of 0 and 1 for multilabel, and int64 (N,T) for next-token.
    """

    x: Tensor
    y: Tensor
    users: Tensor | None = None  # int64 (N,): the user of each sample, if the data have users

    def __len__(self) -> int:
        return len(self.y)

    @property
    def labels(self) -> np.ndarray:
        """The targets as a NumPy array; for classification the labels that partitions look at."""
        return self.y.cpu().numpy()

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Samples and labels as NumPy arrays."""
        return self.x.cpu().numpy(), self.labels


@dataclass(frozen=True)
class Dataset:
    """A training split, a test split, the class names, and normalisation constants.

    task is what the targets are for. classes names the outputs of a model: the classes, the labels
    of multilabel data, the numbers that regression predicts, or the tokens.

    mean and std are per channel of images, signals and volumes, in units of [0, 1] for bytes, else
    in those of the samples. They are empty for text, for tables (readers standardise those) and for
    float images, which reach the model unchanged.
    """

    name: str
    kind: Kind
    train: Split
    test: Split
    classes: tuple[str, ...]
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    users: tuple[str, ...] = ()  # names of the natural clients, by their number in Split.users
    about: dict[str, str] = field(default_factory=dict)  # licence, source, format
    task: str = "classification"

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return tuple(self.train.x.shape[1:])
