"""Checks of a data set that could be read.

Problems spoil a result, warnings say what may not be meant, notes are worth knowing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import torch

from fedloom.data.dataset import Dataset, Split
from fedloom.data.sources.client_checks import doubtful_clients
from fedloom.data.sources.errors import shortened

# If more than this share of the test images occurs in training, the measured accuracy is spoilt.
MAX_SHARED = 0.01


def problems_and_notes(dataset: Dataset) -> list[str]:
    """One line each, starting with 'problem: ', 'warning: ' or 'note: '; empty if all is usual."""
    defects = [*_defects(dataset, "train"), *_defects(dataset, "test")]
    if defects:
        return [f"problem: {defect}" for defect in defects]
    return [
        *(f"warning: {warning}" for warning in warnings_about(dataset)),
        *_recorded(dataset, "note: "),
        *(_notes_on_classes(dataset) if dataset.task == "classification" else ()),
        *_shared_samples(dataset),
        *_constant_values(dataset),
        *_idle_users(dataset),
    ]


def warnings_about(dataset: Dataset) -> list[str]:
    """What may not be meant: of the files, as recorded when they were read, and of the clients."""
    recorded = [line.removeprefix("warning: ") for line in _recorded(dataset, "warning: ")]
    return [*recorded, *doubtful_clients(dataset), *constant_targets(dataset)]


def constant_targets(dataset: Dataset) -> Iterator[str]:
    """Numbers to predict that are all the same."""
    if dataset.task != "regression":
        return
    columns = dataset.train.y.reshape(len(dataset.train), -1)
    for name, column in zip(dataset.classes, columns.T, strict=True):
        if (column == column[0]).all():
            value = f"{float(column[0]):g}"
            yield f"the target '{name}' is {value} in all training rows: nothing can be learned"


def _recorded(dataset: Dataset, start: str) -> list[str]:
    """The reader's remarks that start with this word."""
    remarks: list[str] = json.loads(dataset.about.get("remarks", "[]"))
    return [line for line in remarks if line.startswith(start)]


def _defects(dataset: Dataset, name: str) -> Iterator[str]:
    """What would stop training."""
    split: Split = getattr(dataset, name)
    if not len(split):
        yield f"{name} has no samples"
        return
    classes = len(dataset.classes)
    shape = tuple(split.x.shape[1:])
    if len(split.x) != len(split.y):
        yield f"{name} has {len(split.x)} samples and {len(split.y)} labels"
    if shape != dataset.shape:
        yield f"{name} has samples of shape {shape}, the training split {dataset.shape}"
    if dataset.task == "classification" and not _is_within(split.y, classes):
        yield f"{name} has labels {_span(split.y)} for {classes} classes"
    if split.y.is_floating_point() and not torch.isfinite(split.y).all():
        yield f"{name} has targets that are NaN or infinite"
    if split.x.is_floating_point() and not torch.isfinite(split.x).all():
        yield f"{name} holds NaN or infinity"
    if dataset.kind == "text" and not _is_within(split.x, classes):
        yield f"{name} has characters {_span(split.x)} for an alphabet of {classes}"


def _is_within(numbers: torch.Tensor, count: int) -> bool:
    return bool(numbers.min() >= 0) and bool(numbers.max() < count)


def _span(numbers: torch.Tensor) -> str:
    return f"{int(numbers.min())} to {int(numbers.max())}"


def _notes_on_classes(dataset: Dataset) -> Iterator[str]:
    yield from _absent_classes(dataset)
    yield from _gaps_in_class_numbers(dataset)


def _absent_classes(dataset: Dataset) -> Iterator[str]:
    classes = len(dataset.classes)
    in_train = np.bincount(dataset.train.labels, minlength=classes) > 0
    in_test = np.bincount(dataset.test.labels, minlength=classes) > 0
    for note, mask in (
        ("classes of the test split without a training sample", ~in_train & in_test),
        ("classes without a test sample", in_train & ~in_test),
        ("classes without any sample", ~in_train & ~in_test),
    ):
        if mask.any():
            names = shortened(repr(dataset.classes[c]) for c in np.flatnonzero(mask))
            yield f"note: {note}: {names}"


def _gaps_in_class_numbers(dataset: Dataset) -> Iterator[str]:
    """Labels such as 0 and 7: the distinct ones are the classes, and that may not be meant."""
    if not all(name.isdecimal() for name in dataset.classes):
        return
    numbers = sorted(int(name) for name in dataset.classes)
    gaps = [(low + 1, high - 1) for low, high in pairwise(numbers) if high - low > 1]
    if gaps:
        absent = shortened(str(a) if a == b else f"{a} to {b}" for a, b in gaps)
        yield (
            f"note: the labels have gaps: there are {len(numbers)} classes, "
            f"{shortened(map(str, numbers))}, and none for {absent}"
        )


def _shared_samples(dataset: Dataset) -> Iterator[str]:
    """Test samples that are also trained on; rows of tables and windows of text may well repeat."""
    seen = set(_digests(dataset.train))
    count = sum(digest in seen for digest in _digests(dataset.test))
    if count:
        may_repeat = dataset.kind in ("table", "text")
        is_leak = not may_repeat and count > MAX_SHARED * len(dataset.test)
        severity = "problem" if is_leak else "note"
        yield (
            f"{severity}: {count} of {len(dataset.test)} test samples "
            "occur in the training split too"
        )


def _digests(split: Split) -> Iterator[bytes]:
    return (hashlib.blake2b(row, digest_size=16).digest() for row in split.x.contiguous().numpy())


def _constant_values(dataset: Dataset) -> Iterator[str]:
    """Images and columns with a single value."""
    if dataset.kind == "table":
        is_constant = (dataset.train.x == dataset.train.x[0]).all(dim=0)
        if is_constant.any():
            yield (
                f"note: {int(is_constant.sum())} of {is_constant.numel()} columns "
                "have one value in all training rows"
            )
        return
    for name, split in (("train", dataset.train), ("test", dataset.test)):
        rows = split.x.flatten(1)
        if count := int((rows == rows[:, :1]).all(dim=1).sum()):
            yield f"note: {count} of {len(split)} samples of {name} have a single value throughout"


def _idle_users(dataset: Dataset) -> Iterator[str]:
    if dataset.train.users is not None:
        idle = len(dataset.users) - len(torch.unique(dataset.train.users))
        if idle:
            yield f"note: {idle} of {len(dataset.users)} users have no training sample"
