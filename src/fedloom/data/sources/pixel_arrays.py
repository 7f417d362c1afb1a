"""Image arrays of any common layout as fedloom stores them: uint8 (N,C,H,W)."""

from __future__ import annotations

import numpy as np

from fedloom.data.sources.errors import data_error

CHANNELS = (1, 2, 3, 4)


def as_uint8_images(x: np.ndarray, where: object) -> np.ndarray:
    """Images of any common layout and scale as contiguous uint8 (N,C,H,W)."""
    return np.ascontiguousarray(to_uint8(channels_first(x, where), where))


def channels_first(x: np.ndarray, where: object) -> np.ndarray:
    """(N,H,W), (N,C,H,W) or (N,H,W,C) as (N,C,H,W).

    If both the second and the last axis could be channels, the layout with square images is taken.
    """
    if x.ndim == 3:
        return x[:, None]
    if x.ndim == 4:
        second, third, last = x.shape[1:]
        only_square_if_last = second == third != last
        if last in CHANNELS and (second not in CHANNELS or only_square_if_last):
            return np.moveaxis(x, 3, 1)
        if second in CHANNELS:
            return x
    expected = "(N,H,W), (N,C,H,W) or (N,H,W,C) with 1 to 4 channels"
    raise data_error(where, f"an array of shape {x.shape}", expected, "reshape it")


def to_uint8(x: np.ndarray, where: object) -> np.ndarray:
    """Fractions in [0, 1] or whole numbers from 0 to 255 as uint8."""
    if x.dtype == np.uint8 or x.size == 0:
        return x
    if x.dtype.kind not in "biuf":
        remedy = "store the images as uint8"
        raise data_error(where, f"pixels of type {x.dtype}", "numbers", remedy)
    _check_finite(x, where)
    low, high = x.min(), x.max()
    if x.dtype.kind in "bf" and low >= 0 and high <= 1:
        return np.rint(x * np.float32(255)).astype(np.uint8)
    if low >= 0 and high <= 255 and (x == np.floor(x)).all():
        return x.astype(np.uint8)
    raise data_error(
        where,
        f"pixels from {low:g} to {high:g}",
        "fractions in [0, 1] or whole numbers from 0 to 255",
        "pass the raw pixels: fedloom normalises them",
    )


def _check_finite(x: np.ndarray, where: object) -> None:
    is_finite = np.isfinite(x)
    if not is_finite.all():
        image = int(np.flatnonzero(~is_finite.reshape(len(x), -1).all(axis=1))[0])
        found = f"NaN or infinity in image {image}"
        raise data_error(where, found, "finite pixels", "repair or leave out the image")
