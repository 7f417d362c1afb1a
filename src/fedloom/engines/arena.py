"""Memory that processes share: tensors are written once and read as views; nothing is serialised.

An arena is a file without a name, in memory where the system offers that, whose descriptor a worker inherits. It vanishes with
its last process, however that ends. It is sparse and grows as needed; both sides map it again when it has.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

import torch
from torch import Tensor

_ALIGN = 64


class Place(TypedDict):
    """Where a tensor lies."""

    dtype: str
    shape: list[int]
    offset: int


Layout = dict[str, Place]


class Arena:
    """One side's view of a shared file."""

    def __init__(self, fd: int | None = None) -> None:
        self.fd = _nameless_file() if fd is None else fd
        self._map: mmap.mmap | None = None

    def write(self, tensors: Mapping[str, Tensor]) -> Layout:
        """Copy the tensors in, over what was there, and say where they lie."""
        layout, end = _plan(tensors)
        self._reach(end)
        for name, target in self.read(layout).items():
            target.copy_(tensors[name])
        return layout

    def read(self, layout: Layout) -> dict[str, Tensor]:
        """Views of what lies there; valid until the next write."""
        self._reach(max((_end(place) for place in layout.values()), default=0))
        return {name: self._view(place) for name, place in layout.items()}

    def _view(self, place: Place) -> Tensor:
        dtype: torch.dtype = getattr(torch, place["dtype"])
        count = _count(place["shape"])
        if count == 0 or self._map is None:
            return torch.empty(place["shape"], dtype=dtype)
        return torch.frombuffer(self._map, dtype=dtype, count=count, offset=place["offset"]).view(
            place["shape"]
        )

    def _reach(self, size: int) -> None:
        """Map at least so many bytes; an older map lives on as long as its views do."""
        if size == 0 or (self._map is not None and len(self._map) >= size):
            return
        if os.fstat(self.fd).st_size < size:
            os.ftruncate(self.fd, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE)
        self._map = mmap.mmap(self.fd, os.fstat(self.fd).st_size)

    def close(self) -> None:
        """Give the descriptor back; views that are still in use keep the memory."""
        self._map = None
        os.close(self.fd)


def _nameless_file() -> int:
    folder = "/dev/shm" if Path("/dev/shm").is_dir() and os.access("/dev/shm", os.W_OK) else None
    fd, path = tempfile.mkstemp(prefix="fedloom-", dir=folder)
    Path(path).unlink()
    return fd


def _plan(tensors: Mapping[str, Tensor]) -> tuple[Layout, int]:
    layout, at = Layout(), 0
    for name, t in tensors.items():
        layout[name] = Place(
            dtype=str(t.dtype).removeprefix("torch."), shape=list(t.shape), offset=at
        )
        at += -(-t.numel() * t.element_size() // _ALIGN) * _ALIGN
    return layout, at


def _end(place: Place) -> int:
    size: int = torch.empty(0, dtype=getattr(torch, place["dtype"])).element_size()
    return place["offset"] + _count(place["shape"]) * size


def _count(shape: list[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count
