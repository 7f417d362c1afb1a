"""Characters as numbers; the alphabet is also the list of classes (next-character prediction)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from fedloom.data.sources.errors import data_error


def code_points(strings: Sequence[str], where: object) -> np.ndarray:
    """The Unicode code points of strings of one length, uint32 (N,T)."""
    length = len(strings[0])
    for i, string in enumerate(strings):
        if len(string) != length:
            found = f"a text of {len(string)} characters as sample {i}"
            raise data_error(where, found, f"{length} as the first", "cut them to one length")
    if not length:
        remedy = "leave the empty samples out"
        raise data_error(where, "empty texts", "at least one character each", remedy)
    flat = "".join(strings).encode("utf-32-le", errors="surrogatepass")
    return np.frombuffer(flat, "<u4").reshape(len(strings), length)


def alphabet(arrays: Iterable[np.ndarray]) -> np.ndarray:
    """All code points that occur, sorted.

    >>> "".join(map(chr, alphabet([code_points(["to", "be"], "")]).tolist()))
    'beot'
    """
    return np.unique(np.concatenate([np.unique(array) for array in arrays]))


def encode(array: np.ndarray, letters: np.ndarray) -> np.ndarray:
    """Code points as positions in the alphabet, int64."""
    return np.searchsorted(letters, array).astype(np.int64)
