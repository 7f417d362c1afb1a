"""Data sets that arrive as arrays: pictures where a sample has two or three dimensions, a table where it has one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedloom.data.dataset import Dataset, Kind
from fedloom.data.sources import holdout
from fedloom.data.sources.build import Part, dataset, part
from fedloom.data.sources.errors import bad
from fedloom.data.sources.pixel_arrays import images


def samples(x: np.ndarray, y: object, where: object, users: object = None) -> Part:
    """A split of pictures, uint8, or of features, float32."""
    return part(_features(x, where) if x.ndim == 2 else images(x, where), y, where, users)


def _features(x: np.ndarray, where: object) -> np.ndarray:
    if x.dtype.kind not in "biuf":
        raise bad(
            where,
            f"features of type {x.dtype}",
            "numbers",
            "encode them as numbers, or use the format table",
        )
    found = to_float32(x)
    if not np.isfinite(found).all():
        at = int(np.flatnonzero(~np.isfinite(found).all(axis=1))[0])
        raise bad(
            where,
            f"NaN or infinity in sample {at}",
            "finite features of float32",
            "fill the gaps, or use the format table",
        )
    return found


def assembled(
    name: str,
    train: Part,
    test: Part | None,
    share: float,
    about: Mapping[str, str],
    classes: Sequence[str] = (),
) -> Dataset:
    """The data set of one or two splits; tables are standardised by their training rows."""
    made = {} if test is not None else {"test split": holdout.said(share, train.users is not None)}
    first, second = (train, test) if test is not None else holdout.split(train, share)
    kind: Kind = "table" if first.x.ndim == 2 else "image"
    if kind == "table" and first.x.shape[1:] == second.x.shape[1:]:
        centre, spread = moments(first.x)
        first, second = (replace(p, x=to_float32((p.x - centre) / spread)) for p in (first, second))
    return dataset(name, kind, first, second, {**about, **made}, classes)


def to_float32(x: np.ndarray) -> np.ndarray:
    """As float32; what is too large becomes infinity, for the checks to find."""
    with np.errstate(over="ignore"):
        return x.astype(np.float32)


def moments(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each column in float64; a column of one value has spread 1."""
    spread = x.std(axis=0, dtype=np.float64)
    return x.mean(axis=0, dtype=np.float64), np.where(spread > 0, spread, 1.0)
