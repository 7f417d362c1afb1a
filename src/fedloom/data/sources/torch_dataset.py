"""Any map-style torch Dataset of (sample, label), read once into memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from fedloom.core.errors import UserError
from fedloom.data.dataset import Dataset
from fedloom.data.sources.arrays import assembled, samples
from fedloom.data.sources.build import Part
from fedloom.data.sources.errors import bad


def from_torch(
    train: Any,
    test: Any = None,
    name: str = "torch",
    classes: Sequence[str] = (),
    test_share: float = 0.2,
) -> Dataset:
    """The data set of two torch Datasets whose samples are tensors, arrays or PIL pictures of one shape, with integer labels.

    Pictures must be raw, [0, 1] or 0 to 255: leave Normalize and random transforms out, fedloom does both itself.
    """
    if not 0 < test_share < 1:
        raise UserError(
            f"test_share={test_share!r} must lie between 0 and 1 (share of the samples held out for testing)"
        )
    second = None if test is None else _part(test, "test")
    return assembled(
        name,
        _part(train, "train"),
        second,
        test_share,
        {"format": "torch", "source": type(train).__name__},
        classes,
    )


def _part(source: Any, split: str) -> Part:
    where = f"{split} ({type(source).__name__})"
    if not (hasattr(source, "__len__") and hasattr(source, "__getitem__")):
        raise bad(
            where,
            "no length or no access by index",
            "a map-style torch Dataset",
            "give it __len__ and __getitem__",
        )
    pairs = [_pair(source[i], i, where) for i in range(len(source))]
    if not pairs:
        raise bad(
            where, "no samples", "at least one", "check the folder and the split it was made from"
        )
    first = pairs[0][0]
    for i, (x, _) in enumerate(pairs):
        if x.shape != first.shape:
            raise bad(
                where,
                f"sample {i} of shape {x.shape}",
                f"{first.shape} as sample 0",
                "resize all to one shape",
            )
    return samples(np.stack([x for x, _ in pairs]), [y for _, y in pairs], where)


def _pair(item: Any, i: int, where: str) -> tuple[np.ndarray, int]:
    if not (isinstance(item, (tuple, list)) and len(item) == 2):
        raise bad(
            where,
            f"a {type(item).__name__} as sample {i}",
            "a pair (x, label)",
            "return x and label from __getitem__",
        )
    x, y = item
    try:
        return x.detach().cpu().numpy() if isinstance(x, torch.Tensor) else np.asarray(x), int(y)
    except (TypeError, ValueError):
        raise bad(
            where, f"label {y!r} at sample {i}", "a whole number", "return the number of the class"
        ) from None
