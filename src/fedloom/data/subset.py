"""Part of a data set, for quick experiments: first classes, first samples of each, small images.

Nothing is drawn: the same settings keep the same samples, whatever the seed. It is applied before
the long tail and the partition. Classes are left out of both splits, samples only of the training
split. The normalisation constants stay those of the whole set unless others are given.
"""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from fedloom.core.errors import UserError
from fedloom.data.dataset import Dataset, Split

CHUNK = 4096  # images averaged at once: in floating point the whole set would take 4x its memory


def subset(
    dataset: Dataset,
    classes: int | None = None,
    per_class: int | None = None,
    pixels: int | None = None,
) -> Dataset:
    """The first `classes` classes, `per_class` training samples of each, images of side `pixels`.

    None leaves that aspect unchanged.
    """
    if classes is not None:
        dataset = _first_classes(dataset, classes)
    if per_class is not None:
        is_kept = _rank_in_class(dataset.train.y) < per_class
        dataset = replace(dataset, train=_rows(dataset.train, is_kept))
    if pixels is not None:
        dataset = _downscaled(dataset, pixels)
    return dataset


def renormalised(dataset: Dataset, mean: tuple[float, ...], std: tuple[float, ...]) -> Dataset:
    """The data set with other normalisation constants, e.g. those that a paper used."""
    if dataset.kind in ("table", "text"):
        raise UserError(
            "data.mean, data.std: they are for images, signals and volumes, and "
            f"'{dataset.name}' is a {dataset.kind}; leave them out"
        )
    if dataset.kind == "image" and dataset.train.x.is_floating_point():
        raise UserError(
            f"data.mean, data.std: '{dataset.name}' has images of floats, which reach the model "
            "unchanged; normalise them before, or leave data.mean and data.std out"
        )
    channels = dataset.shape[0]
    if (len(mean), len(std)) != (channels, channels):
        raise UserError(
            f"data.mean has {len(mean)} and data.std has {len(std)} numbers, and samples of "
            f"'{dataset.name}' have {channels} channel{'s' if channels > 1 else ''}; "
            "give one number per channel for both, or leave both out"
        )
    return replace(dataset, mean=mean, std=std)


def _first_classes(dataset: Dataset, classes: int) -> Dataset:
    available = len(dataset.classes)
    if classes > available:
        raise UserError(
            f"data.classes={classes} is more than the {available} classes of '{dataset.name}'; "
            f"use at most {available}"
        )
    train, test = (_rows(split, split.y < classes) for split in (dataset.train, dataset.test))
    for name, split in (("training", train), ("test", test)):
        if not len(split):
            raise UserError(
                f"data.classes={classes} leaves no {name} sample of '{dataset.name}'; "
                "use more classes"
            )
    return replace(dataset, train=train, test=test, classes=dataset.classes[:classes])


def _rows(split: Split, is_kept: Tensor) -> Split:
    users = None if split.users is None else split.users[is_kept]
    return Split(split.x[is_kept], split.y[is_kept], users)


def _rank_in_class(labels: Tensor) -> Tensor:
    """For each sample, how many of the same class come before it.

    >>> _rank_in_class(torch.tensor([1, 0, 1, 1, 0]))
    tensor([0, 0, 1, 2, 1])
    """
    order = torch.argsort(labels, stable=True)
    starts = torch.searchsorted(labels[order], labels[order])
    return torch.empty_like(labels).scatter_(0, order, torch.arange(len(labels)) - starts)


def _downscaled(dataset: Dataset, pixels: int) -> Dataset:
    if dataset.kind != "image":
        raise UserError(
            f"data.pixels={pixels}: '{dataset.name}' is a {dataset.kind} and has no pixels; "
            "leave data.pixels out"
        )
    height, width = dataset.shape[1:]
    if pixels > min(height, width):
        raise UserError(
            f"data.pixels={pixels} is more than the {height} x {width} pixels of "
            f"'{dataset.name}'; use at most {min(height, width)}, or leave it out"
        )
    train, test = (
        replace(split, x=_averaged(split.x, pixels)) for split in (dataset.train, dataset.test)
    )
    return replace(dataset, train=train, test=test)


def _averaged(x: Tensor, pixels: int) -> Tensor:
    """Every new pixel is the mean of the old ones it covers; uint8 results are rounded."""
    pieces = []
    for chunk in torch.split(x, CHUNK):
        means = F.adaptive_avg_pool2d(chunk.float(), pixels)
        pieces.append(means if x.is_floating_point() else means.round_().to(x.dtype))
    return torch.cat(pieces)
