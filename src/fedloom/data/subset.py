"""Part of a data set, for experiments in minutes: the first classes, the first samples of each, smaller pictures.

Nothing is drawn: the same settings keep the same samples, whatever the seed. It comes before long tail and partition. Classes are
left out of both splits, samples only of the training split; the constants of normalisation stay those of the whole set, unless
others are given.
"""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from fedloom.core.errors import UserError
from fedloom.data.dataset import Dataset, Split

AT_A_TIME = 4096  # pictures averaged at once: as floating point a whole set would take four times its memory


def subset(
    dataset: Dataset,
    classes: int | None = None,
    per_class: int | None = None,
    pixels: int | None = None,
) -> Dataset:
    """The data set cut down; None leaves a side of it whole."""
    if classes is not None:
        dataset = _first_classes(dataset, classes)
    if per_class is not None:
        dataset = replace(dataset, train=_rows(dataset.train, _rank(dataset.train.y) < per_class))
    if pixels is not None:
        dataset = _smaller(dataset, pixels)
    return dataset


def renormalised(dataset: Dataset, mean: tuple[float, ...], std: tuple[float, ...]) -> Dataset:
    """The data set with other constants of normalisation, as where a paper took those of another set."""
    channels = dataset.shape[0] if dataset.kind == "image" else 0
    if not channels:
        raise UserError(
            f"data.mean, data.std: '{dataset.name}' is a {dataset.kind} and is not normalised; leave them out"
        )
    if (len(mean), len(std)) != (channels, channels):
        raise UserError(
            f"data.mean has {len(mean)} and data.std has {len(std)} numbers, and images of '{dataset.name}' have {channels} "
            f"channel{'s' if channels > 1 else ''}; give as many of both, or leave both out"
        )
    return replace(dataset, mean=mean, std=std)


def _first_classes(dataset: Dataset, classes: int) -> Dataset:
    there = len(dataset.classes)
    if classes > there:
        raise UserError(
            f"data.classes={classes} is more than the {there} classes of '{dataset.name}'; take at most {there}"
        )
    train, test = (_rows(split, split.y < classes) for split in (dataset.train, dataset.test))
    for name, split in (("training", train), ("test", test)):
        if not len(split):
            raise UserError(
                f"data.classes={classes} leaves no {name} sample of '{dataset.name}'; take more classes"
            )
    return replace(dataset, train=train, test=test, classes=dataset.classes[:classes])


def _rows(split: Split, kept: Tensor) -> Split:
    return Split(split.x[kept], split.y[kept], None if split.users is None else split.users[kept])


def _rank(labels: Tensor) -> Tensor:
    """How many samples of the same class come before each.

    >>> _rank(torch.tensor([1, 0, 1, 1, 0]))
    tensor([0, 0, 1, 2, 1])
    """
    order = torch.argsort(labels, stable=True)
    starts = torch.searchsorted(labels[order], labels[order])
    return torch.empty_like(labels).scatter_(0, order, torch.arange(len(labels)) - starts)


def _smaller(dataset: Dataset, pixels: int) -> Dataset:
    if dataset.kind != "image":
        raise UserError(
            f"data.pixels={pixels}: '{dataset.name}' is a {dataset.kind} and has no pixels; leave data.pixels out"
        )
    height, width = dataset.shape[1:]
    if pixels > min(height, width):
        raise UserError(
            f"data.pixels={pixels} is more than the {height} x {width} pixels of '{dataset.name}'; "
            f"take at most {min(height, width)}, or leave it out"
        )
    train, test = (
        replace(split, x=_averaged(split.x, pixels)) for split in (dataset.train, dataset.test)
    )
    return replace(dataset, train=train, test=test)


def _averaged(x: Tensor, pixels: int) -> Tensor:
    """Every new pixel is the mean of the old ones it covers, rounded."""
    pieces = [
        F.adaptive_avg_pool2d(piece.float(), pixels).round_().to(x.dtype)
        for piece in torch.split(x, AT_A_TIME)
    ]
    return torch.cat(pieces)
