"""The rows of every client: a list of arrays, or consecutive pieces of one array.

With a million clients a million arrays take longer to make, and more memory, than their contents.
`Pieces` makes a client's array when it is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

Parts = Sequence[np.ndarray]  # the rows of each client


@dataclass(frozen=True, eq=False)
class Pieces(Sequence[np.ndarray]):
    """Pieces of one array of rows: piece i is rows[starts[i]:stops[i]]."""

    rows: np.ndarray
    starts: np.ndarray
    stops: np.ndarray

    @staticmethod
    def consecutive(rows: np.ndarray, sizes: np.ndarray) -> Pieces:
        """Consecutive pieces of the given sizes; rows after the last piece are left out."""
        stops = np.cumsum(sizes)
        return Pieces(rows, stops - sizes, stops)

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, index: int) -> np.ndarray: ...
    @overload
    def __getitem__(self, index: slice) -> Pieces: ...
    def __getitem__(self, index: int | slice) -> np.ndarray | Pieces:
        if isinstance(index, slice):
            return self.chosen(np.arange(len(self))[index])
        return self.rows[self.starts[index] : self.stops[index]]

    def chosen(self, numbers: np.ndarray) -> Pieces:
        """The pieces with these numbers, in this order."""
        return Pieces(self.rows, self.starts[numbers], self.stops[numbers])


def row_type(samples: int) -> type[np.signedinteger]:
    """The type of the numbers of rows: of 32 bits if these are enough for the samples."""
    return np.int32 if samples < 2**31 else np.int64


def part_sizes(parts: Parts) -> np.ndarray:
    """The number of rows of each client."""
    if isinstance(parts, Pieces):
        sizes: np.ndarray = parts.stops - parts.starts
        return sizes
    return np.fromiter(map(len, parts), dtype=np.int64, count=len(parts))


def all_rows(parts: Parts) -> np.ndarray:
    """The rows of all clients, one client after the other; not to be written to.

    >>> all_rows(Pieces(np.array([7, 8, 9]), starts=np.array([2, 0]), stops=np.array([3, 2])))
    array([9, 7, 8])
    """
    if isinstance(parts, Pieces) and (parts.starts[1:] == parts.stops[:-1]).all() and len(parts):
        return parts.rows[parts.starts[0] : parts.stops[-1]]
    return np.concatenate(parts) if len(parts) else np.empty(0, dtype=np.int64)
