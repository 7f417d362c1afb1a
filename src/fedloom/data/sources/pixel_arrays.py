"""Pictures as they are kept: uint8 (N,C,H,W)."""

from __future__ import annotations

import numpy as np

from fedloom.data.sources.errors import bad

CHANNELS = (1, 2, 3, 4)


def images(x: np.ndarray, where: object) -> np.ndarray:
    """Pictures of any usual layout and scale as contiguous uint8 (N,C,H,W)."""
    return np.ascontiguousarray(to_uint8(channels_first(x, where), where))


def channels_first(x: np.ndarray, where: object) -> np.ndarray:
    """(N,H,W), (N,C,H,W) or (N,H,W,C) as (N,C,H,W); where both ends could be channels, square pictures decide."""
    if x.ndim == 3:
        return x[:, None]
    if (
        x.ndim == 4
        and x.shape[3] in CHANNELS
        and (x.shape[1] not in CHANNELS or x.shape[1] == x.shape[2] != x.shape[3])
    ):
        return np.moveaxis(x, 3, 1)
    if x.ndim == 4 and x.shape[1] in CHANNELS:
        return x
    raise bad(
        where,
        f"an array of shape {x.shape}",
        "(N,H,W), (N,C,H,W) or (N,H,W,C) with 1 to 4 channels",
        "reshape it",
    )


def to_uint8(x: np.ndarray, where: object) -> np.ndarray:
    """Fractions of [0, 1] or whole numbers of 0 to 255 as uint8."""
    if x.dtype == np.uint8 or x.size == 0:
        return x
    if x.dtype.kind not in "biuf":
        raise bad(where, f"pixels of type {x.dtype}", "numbers", "store the pictures as uint8")
    if not (finite := np.isfinite(x)).all():
        at = int(np.flatnonzero(~finite.reshape(len(x), -1).all(axis=1))[0])
        raise bad(
            where,
            f"NaN or infinity in picture {at}",
            "finite pixels",
            "repair or leave out the picture",
        )
    low, high = x.min(), x.max()
    if x.dtype.kind in "bf" and low >= 0 and high <= 1:
        return np.rint(x * np.float32(255)).astype(np.uint8)
    if low >= 0 and high <= 255 and (x == np.floor(x)).all():
        return x.astype(np.uint8)
    expected = "fractions of [0, 1] or whole numbers of 0 to 255"
    raise bad(
        where,
        f"pixels from {low:g} to {high:g}",
        expected,
        "leave normalisation to fedloom: give the raw pixels",
    )
