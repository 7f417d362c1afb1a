"""Characters as numbers. The alphabet is also the list of classes, for the next character is what is to be told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from fedloom.data.sources.errors import bad


def points(strings: Sequence[str], where: object) -> np.ndarray:
    """The code points of strings of one length, uint32 (N,T)."""
    length = len(strings[0])
    for i, s in enumerate(strings):
        if len(s) != length:
            raise bad(
                where,
                f"a text of {len(s)} characters as sample {i}",
                f"{length} as the first",
                "cut them to one length",
            )
    if not length:
        raise bad(
            where, "empty texts", "at least one character each", "leave the empty samples out"
        )
    flat = "".join(strings).encode("utf-32-le", errors="surrogatepass")
    return np.frombuffer(flat, "<u4").reshape(len(strings), length)


def alphabet(arrays: Iterable[np.ndarray]) -> np.ndarray:
    """All code points that occur, in their order.

    >>> "".join(map(chr, alphabet([points(["to", "be"], "")]).tolist()))
    'beot'
    """
    return np.unique(np.concatenate([np.unique(a) for a in arrays]))


def codes(array: np.ndarray, letters: np.ndarray) -> np.ndarray:
    """Code points as places in the alphabet, int64."""
    return np.searchsorted(letters, array).astype(np.int64)
