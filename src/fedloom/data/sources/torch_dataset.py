"""A map-style torch Dataset of (sample, label), read once into memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset

from fedloom.core.errors import UserError
from fedloom.core.learning_task import learning_task
from fedloom.data.dataset import Dataset
from fedloom.data.sources.arrays import dataset_from_splits, split_from_arrays
from fedloom.data.sources.build import RawSplit
from fedloom.data.sources.errors import data_error
from fedloom.data.sources.labels import check_whole
from fedloom.data.sources.targets import FOR_COLUMNS


def from_torch(
    train: Any,
    test: Any = None,
    name: str = "torch",
    classes: Sequence[str] = (),
    test_share: float = 0.2,
    kind: str | None = None,
    channels: str | None = None,
    task: str = "classification",
) -> Dataset:
    """The data set of two torch Datasets, of one shape and with integer labels.

    With another `task`, labels are numbers, or lists of numbers.

    Samples are tensors, arrays or PIL images. Pixels must be raw, in [0, 1] or from 0 to 255:
    leave out Normalize and random transforms, as fedloom applies both itself. Features of a table
    are standardised, signals and volumes are normalised per channel. kind ("signal", "volume",
    "image" or "table") and channels ("first" or "last") decide where the shape leaves it open.
    """
    check_test_share(test_share)
    read = partial(_read_split, kind=kind, channels=channels, task=learning_task(task).name)
    train_split = read(train, "train")
    test_split = None if test is None else read(test, "test")
    about = {"format": "torch", "source": type(train).__name__}
    return dataset_from_splits(name, train_split, test_split, test_share, about, classes, task)


def check_test_share(test_share: float) -> None:
    """Reject a share outside (0, 1)."""
    if not isinstance(test_share, (int, float)) or not 0 < test_share < 1:
        raise UserError(
            f"test_share={test_share!r} must lie between 0 and 1 "
            "(share of the samples held out for testing)"
        )


def _read_split(
    source: Any, split: str, kind: str | None, channels: str | None, task: str
) -> RawSplit:
    where = f"{split} ({type(source).__name__})"
    x, labels = stacked(source, where)
    y = _class_numbers(labels, where) if task == "classification" else target_array(labels, where)
    return split_from_arrays(x, y, where, kind=kind, channels=channels, task=task)


def target_array(labels: list[Any], where: object) -> np.ndarray:
    """Targets of one length as an array."""
    try:
        return np.array(labels)
    except ValueError:
        found, remedy = "targets of several lengths", "give every sample the same targets"
        raise data_error(where, found, "one length", remedy) from None


def _class_numbers(labels: list[Any], where: object) -> np.ndarray:
    numbers = []
    for i, label in enumerate(labels):
        try:
            numbers.append(float(label))  # not int, which would turn 0.7 into class 0
        except (TypeError, ValueError):
            found, remedy = f"label {label!r} at sample {i}", "return the number of the class"
            remedy = f"{remedy}, or {FOR_COLUMNS}" if isinstance(label, list) else remedy
            raise data_error(where, found, "a whole number", remedy) from None
    check_whole(np.array(numbers), where, "whole numbers from 0")
    are_floats = any(isinstance(label, float) for label in labels)
    return np.array(numbers, dtype=np.float64 if are_floats else np.int64)


def stacked(source: Any, where: object) -> tuple[np.ndarray, list[Any]]:
    """All samples of a map-style Dataset as one array, and its labels as they are."""
    is_map_style = hasattr(source, "__len__") and hasattr(source, "__getitem__")
    if not is_map_style or isinstance(source, IterableDataset):
        found, remedy = "no length or no access by index", "give it __len__ and __getitem__"
        raise data_error(where, found, "a map-style torch Dataset", remedy)
    pairs = [_pair(source[i], i, where) for i in range(len(source))]
    if not pairs:
        remedy = "check the folder and the split it was made from"
        raise data_error(where, "no samples", "at least one", remedy)
    first = pairs[0][0]
    for i, (x, _) in enumerate(pairs):
        if x.shape != first.shape:
            found, expected = f"sample {i} of shape {x.shape}", f"{first.shape} as sample 0"
            raise data_error(where, found, expected, "resize all samples to one shape")
    return np.stack([x for x, _ in pairs]), [label for _, label in pairs]


def _pair(item: Any, i: int, where: object) -> tuple[np.ndarray, Any]:
    if not (isinstance(item, (tuple, list)) and len(item) == 2):
        found = f"a {type(item).__name__} as sample {i}"
        remedy = "return x and label from __getitem__"
        raise data_error(where, found, "a pair (x, label)", remedy)
    x, label = item
    if isinstance(label, (torch.Tensor, np.ndarray, np.generic)):
        label = label.tolist()
    return tensor_to_numpy(x, where) if isinstance(x, torch.Tensor) else np.asarray(x), label


def tensor_to_numpy(tensor: torch.Tensor, where: object) -> np.ndarray:
    """The values of a dense tensor on any device; bfloat16, which NumPy lacks, as float32."""
    if tensor.layout != torch.strided:
        found, remedy = f"a tensor of layout {tensor.layout}", "call to_dense()"
        raise data_error(where, found, "a dense tensor", remedy)
    tensor = tensor.detach().cpu()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
