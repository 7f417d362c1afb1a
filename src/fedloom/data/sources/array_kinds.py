"""What an array of samples is: a table, signals, images or volumes, and where its channels are.

table    (N,F)
signal   (N,L), or (N,C,L)
image    (N,H,W), (N,C,H,W) or (N,H,W,C)
volume   (N,D,H,W), or (N,C,D,H,W)

Without `kind` the number of axes decides where it can. Where it cannot, the error asks for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np

from fedloom.core.errors import unknown_name
from fedloom.core.spec import Param
from fedloom.data.sources.errors import data_error
from fedloom.data.sources.pixel_arrays import CHANNELS, as_uint8_images

ArrayKind = Literal["table", "signal", "image", "volume"]
ARRAY_KINDS: tuple[ArrayKind, ...] = ("table", "signal", "image", "volume")
PLACES = ("first", "last")
AXES = {"signal": 1, "volume": 3}  # of a sample, besides its channels
LAYOUTS = {"signal": "(N,L) or (N,C,L)", "volume": "(N,D,H,W) or (N,C,D,H,W)"}

KindOption = Annotated[
    Literal["table", "signal", "image", "volume"] | None,
    Param("what the samples are, if their shape leaves it open"),
]
ChannelsOption = Annotated[
    Literal["first", "last"] | None,
    Param("signals and volumes: whether the channels come before or after the other axes"),
]


def check_options(kind: object, channels: object, kinds: Sequence[str] = ARRAY_KINDS) -> None:
    """Reject values of kind= and channels= that do not exist."""
    if kind is not None and kind not in kinds:
        raise unknown_name("kind of data", kind, kinds)
    if channels is not None and channels not in PLACES:
        raise unknown_name("place of the channels", channels, PLACES)


def kind_of(x: np.ndarray, where: object) -> ArrayKind:
    """The kind that the shape of an array tells; raises if it leaves two open."""
    if x.ndim == 3 and x.dtype != np.uint8 and x.shape[1] != x.shape[2]:
        found = f"an array of shape {x.shape}, type {x.dtype}"
        expected = "images (N,H,W) or signals (N,C,L): the shape does not tell which"
        raise data_error(where, found, expected, "set kind=signal or kind=image")
    if x.ndim == 4 and not set(CHANNELS) & {x.shape[1], x.shape[3]}:
        expected = "images with 1 to 4 channels, or volumes (N,D,H,W)"
        remedy = "set kind=volume if they are volumes, else reshape it"
        raise data_error(where, f"an array of shape {x.shape}", expected, remedy)
    kinds: dict[int, ArrayKind] = {2: "table", 5: "volume"}
    return kinds.get(x.ndim, "image")


def channels_before_axes(
    x: np.ndarray, kind: str, channels: str | None, where: object
) -> np.ndarray:
    """Signals as (N,C,L) or volumes as (N,C,D,H,W); a missing axis of channels is added."""
    axes = AXES[kind]
    if x.ndim == axes + 1:
        return x[:, None]
    if x.ndim != axes + 2:
        found = f"an array of shape {x.shape}"
        remedy = "reshape it, or set another kind"
        raise data_error(where, found, f"{kind}s {LAYOUTS[kind]}", remedy)
    if channels == "last":
        return np.moveaxis(x, -1, 1)
    if channels is None and _seems_channels_last(x, kind):
        found = f"an array of shape {x.shape}: {x.shape[1]} channels of {x.shape[2:]}"
        expected = f"fewer channels than that in {kind}s {LAYOUTS[kind]}"
        remedy = "set channels=last if the last axis has the channels, else channels=first"
        raise data_error(where, found, expected, remedy)
    return x


def _seems_channels_last(x: np.ndarray, kind: str) -> bool:
    if kind == "signal":
        return bool(x.shape[1] > x.shape[2])
    return x.shape[1] not in CHANNELS and x.shape[-1] in CHANNELS


def to_float32(x: np.ndarray) -> np.ndarray:
    """As float32; values out of range become infinity, which the checks report."""
    with np.errstate(over="ignore"):
        return x.astype(np.float32)


def finite_float32(x: np.ndarray, where: object, remedy: str) -> np.ndarray:
    """Numbers of any type as float32; raises for text, and names a sample with NaN or infinity."""
    if x.dtype.kind not in "biuf":
        remedy = "encode them as numbers, or use a table with a column for each"
        raise data_error(where, f"features of type {x.dtype}", "numbers", remedy)
    features = to_float32(x)
    is_finite = np.isfinite(features).all(axis=tuple(range(1, x.ndim)))
    if not is_finite.all():
        found = f"NaN or infinity in sample {int(np.flatnonzero(~is_finite)[0])}"
        raise data_error(where, found, "finite float32 features", remedy)
    return features


def as_kind(x: np.ndarray, kind: str, channels: str | None, where: object) -> np.ndarray:
    """An array as fedloom stores data of this kind; bytes of volumes stay bytes."""
    if channels is not None and kind not in AXES:
        remedy = "leave channels= out, or set kind=signal or kind=volume"
        raise data_error(where, f"{kind} data", "signals or volumes for channels=", remedy)
    if kind == "image":
        return as_uint8_images(x, where)
    remedy = "fill in the missing values, or leave the samples out"
    if kind == "table":
        if x.ndim != 2:
            found = f"an array of shape {x.shape}"
            raise data_error(where, found, "a table (N,F)", "reshape it, or set another kind")
        return finite_float32(x, where, remedy)
    x = channels_before_axes(x, kind, channels, where)
    x = x if x.dtype == np.uint8 and kind == "volume" else finite_float32(x, where, remedy)
    return np.ascontiguousarray(x)
