"""What is odd about a data set that could be read: problems spoil a result, notes are worth knowing."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import torch

from fedloom.data.dataset import Dataset, Split
from fedloom.data.sources.errors import some

LEAK = 0.01  # a larger share of test samples known from training spoils the measured accuracy


def findings(dataset: Dataset) -> list[str]:
    """One line each, beginning with 'problem: ' or 'note: '."""
    broken = [f"problem: {said}" for split in ("train", "test") for said in _broken(dataset, split)]
    return broken or [*_classes(dataset), *_shared(dataset), *_constant(dataset), *_users(dataset)]


def _broken(dataset: Dataset, name: str) -> Iterator[str]:
    """What would stop training."""
    split: Split = getattr(dataset, name)
    if not len(split):
        yield f"{name} has no samples"
        return
    if len(split.x) != len(split.y):
        yield f"{name} has {len(split.x)} samples and {len(split.y)} labels"
    if tuple(split.x.shape[1:]) != dataset.shape:
        yield f"{name} has samples of shape {tuple(split.x.shape[1:])}, the training split {dataset.shape}"
    if split.y.min() < 0 or split.y.max() >= len(dataset.classes):
        yield f"{name} has labels {int(split.y.min())} to {int(split.y.max())} for {len(dataset.classes)} classes"
    if split.x.is_floating_point() and not torch.isfinite(split.x).all():
        yield f"{name} holds NaN or infinity"
    if dataset.kind == "text" and (split.x.min() < 0 or split.x.max() >= len(dataset.classes)):
        yield f"{name} has characters {int(split.x.min())} to {int(split.x.max())} for {len(dataset.classes)} known ones"


def _classes(dataset: Dataset) -> Iterator[str]:
    counts = [
        np.bincount(s.labels, minlength=len(dataset.classes)) for s in (dataset.train, dataset.test)
    ]
    for said, wrong in (
        (
            "note: classes of the test split without a training sample",
            (counts[0] == 0) & (counts[1] > 0),
        ),
        ("note: classes without a test sample", (counts[0] > 0) & (counts[1] == 0)),
        ("note: classes without any sample", (counts[0] == 0) & (counts[1] == 0)),
    ):
        if wrong.any():
            yield f"{said}: {some(repr(dataset.classes[c]) for c in np.flatnonzero(wrong))}"


def _shared(dataset: Dataset) -> Iterator[str]:
    """Test samples that are also trained on; rows of a table and lines of a text may repeat by nature."""
    known = set(_digests(dataset.train))
    count = sum(digest in known for digest in _digests(dataset.test))
    if count:
        leak = dataset.kind == "image" and count > LEAK * len(dataset.test)
        yield f"{'problem' if leak else 'note'}: {count} of {len(dataset.test)} test samples occur in the training split too"


def _digests(split: Split) -> Iterator[bytes]:
    return (hashlib.blake2b(row, digest_size=16).digest() for row in split.x.contiguous().numpy())


def _constant(dataset: Dataset) -> Iterator[str]:
    """Pictures and columns of one value."""
    if dataset.kind == "table":
        flat = (dataset.train.x == dataset.train.x[0]).all(dim=0)
        if flat.any():
            yield f"note: {int(flat.sum())} of {len(flat)} columns have one value in all training rows"
        return
    for name, split in (("train", dataset.train), ("test", dataset.test)):
        rows = split.x.flatten(1)
        if count := int((rows == rows[:, :1]).all(dim=1).sum()):
            yield f"note: {count} of {len(split)} samples of {name} hold one value throughout"


def _users(dataset: Dataset) -> Iterator[str]:
    if dataset.train.users is not None:
        idle = len(dataset.users) - len(torch.unique(dataset.train.users))
        if idle:
            yield f"note: {idle} of {len(dataset.users)} users have no training sample"
