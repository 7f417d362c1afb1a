"""Shared memory between processes: tensors are written once and read as views, never serialised.

An arena is an unlinked file, in memory if the system offers that, whose descriptor a worker
inherits. It disappears with the last process that uses it, however that ends. It is sparse and
grows as needed; each side maps it again when it has grown.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import Tensor

from fedloom.core.errors import shown
from fedloom.engines.wire import WireError

_ALIGNMENT = 64  # bytes
_MEMORY_FOLDER = Path("/dev/shm")
_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in vars(torch).values()
    if isinstance(dtype, torch.dtype) and "q" not in str(dtype)
}


class Place(TypedDict):
    """Type, shape and position of a tensor in the file."""

    dtype: str
    shape: list[int]
    offset: int


Layout = dict[str, Place]


class Arena:
    """One process's view of a shared file."""

    def __init__(self, fd: int | None = None) -> None:
        self.fd = _unlinked_file() if fd is None else fd
        self._map: mmap.mmap | None = None

    def write(self, tensors: Mapping[str, Tensor]) -> Layout:
        """Copy the tensors in, over the previous contents; return where they are."""
        layout, size = _plan(tensors)
        self._grow_to(size)
        for name, target in self.read(layout).items():
            target.copy_(tensors[name])
        return layout

    def read(self, layout: Layout) -> dict[str, Tensor]:
        """Views of the tensors, valid until the next write.

        Raises WireError for a layout that does not describe tensors inside the file.
        """
        size = max((_end(place) for place in _checked(layout).values()), default=0)
        if size > os.fstat(self.fd).st_size:
            raise WireError(f"a layout that ends at byte {size}, after the end of the arena")
        self._map_at_least(size)
        return {name: self._view(place) for name, place in layout.items()}

    def _view(self, place: Place) -> Tensor:
        dtype = _DTYPES[place["dtype"]]
        shape, count = place["shape"], math.prod(place["shape"])
        if count == 0 or self._map is None:
            return torch.empty(shape, dtype=dtype)
        flat = torch.frombuffer(self._map, dtype=dtype, count=count, offset=place["offset"])
        return flat.view(shape)

    def _grow_to(self, size: int) -> None:
        """Make the file at least this large."""
        if os.fstat(self.fd).st_size < size:
            os.ftruncate(self.fd, _rounded_up(size, mmap.PAGESIZE))
        self._map_at_least(size)

    def _map_at_least(self, size: int) -> None:
        """Map at least this number of bytes. An older map stays alive as long as its views."""
        if size == 0 or (self._map is not None and len(self._map) >= size):
            return
        self._map = mmap.mmap(self.fd, os.fstat(self.fd).st_size)

    def close(self) -> None:
        """Close the descriptor; views that are still in use keep the memory."""
        self._map = None
        os.close(self.fd)


def _unlinked_file() -> int:
    in_memory = _MEMORY_FOLDER.is_dir() and os.access(_MEMORY_FOLDER, os.W_OK)
    fd, path = tempfile.mkstemp(prefix="fedloom-", dir=_MEMORY_FOLDER if in_memory else None)
    Path(path).unlink()
    return fd


def _plan(tensors: Mapping[str, Tensor]) -> tuple[Layout, int]:
    """Where to put the tensors, and the number of bytes they take."""
    layout, offset = Layout(), 0
    for name, t in tensors.items():
        dtype = str(t.dtype).removeprefix("torch.")
        layout[name] = Place(dtype=dtype, shape=list(t.shape), offset=offset)
        offset += _rounded_up(t.numel() * t.element_size(), _ALIGNMENT)
    return layout, offset


def _end(place: Place) -> int:
    return place["offset"] + math.prod(place["shape"]) * _DTYPES[place["dtype"]].itemsize


def _checked(layout: Any) -> Layout:
    """The layout, if it has the form of one: it may come from another process."""
    if not isinstance(layout, dict):
        raise WireError(f"a layout that is a {type(layout).__name__}, not a table of places")
    for name, place in layout.items():
        if not (isinstance(place, dict) and place.keys() == Place.__annotations__.keys()):
            raise WireError(f"a layout without a place for tensor {shown(name)}")
        shape, numbers = place["shape"], [place["offset"]]
        numbers += shape if isinstance(shape, list) else [-1]
        is_known = isinstance(place["dtype"], str) and place["dtype"] in _DTYPES
        if not is_known or not all(type(n) is int and 0 <= n < 2**48 for n in numbers):
            raise WireError(f"a layout with an impossible place for {shown(name)}")
        if place["offset"] % _ALIGNMENT:
            raise WireError(f"a layout with an unaligned tensor {shown(name)}")
    return layout


def _rounded_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
