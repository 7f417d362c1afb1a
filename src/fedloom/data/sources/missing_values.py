"""Cells that stand for a missing value, and columns of numbers with other words among them."""

from __future__ import annotations

import re
from collections.abc import Collection

import numpy as np

from fedloom.data.sources.errors import data_error, shortened

MISSING = ("", "?", "na", "n/a", "nan", "null", "none")
_WITH_COMMA = re.compile(r"[+-]?\d+,\d+")


def without_missing(column: np.ndarray, more: Collection[str] = ()) -> np.ndarray:
    """The column with "" (or NaN, if it has numbers) for cells that stand for a missing value.

    `more` are spellings apart from the usual ones; -999 also matches -999.0.

    >>> without_missing(np.array(["1", "NULL", "-", "-999.0"]), ["-", "-999"]).tolist()
    ['1', '', '', '']
    """
    numbers = [float(word) for word in more if is_number(word)]
    if column.dtype.kind == "f":
        return np.where(np.isin(column, numbers), np.nan, column)
    words = {*MISSING, *(word.lower() for word in more)}
    cells, places = np.unique(column, return_inverse=True)
    kept = [
        "" if c.lower() in words or (is_number(c) and float(c) in numbers) else c
        for c in cells.tolist()
    ]
    return np.array(kept, dtype=str)[places]


def is_number(text: str) -> bool:
    """Whether a cell is a number.

    >>> is_number("1e-3"), is_number("-")
    (True, False)
    """
    try:
        float(text)
    except ValueError:
        return False
    return True


def check_no_stray_words(column: np.ndarray, where: object, remedy: str) -> None:
    """Refuse a text column in which at least half of the cells are numbers.

    As text it would become categories, which is hardly meant. {words} in `remedy` becomes the list
    of the words that are no numbers.
    """
    if column.dtype.kind == "f":
        return
    cells, counts = np.unique(column[column != ""], return_counts=True)
    has_comma = np.array([bool(_WITH_COMMA.fullmatch(c)) for c in cells.tolist()], dtype=bool)
    if 2 * counts[has_comma].sum() >= counts.sum() > 0:
        found = f"numbers with a comma ({shortened(cells[has_comma].tolist(), 3)})"
        raise data_error(where, found, "a decimal point", "write 1.5 instead of 1,5")
    is_numeric = np.array([is_number(cell) for cell in cells.tolist()], dtype=bool)
    numeric, other = counts[is_numeric].sum(), counts[~is_numeric].sum()
    if other and numeric >= other:
        words = cells[~is_numeric].tolist()
        first = int(np.flatnonzero(np.isin(column, words))[0]) + 1
        listed = shortened((f"'{word}'" for word in words), 5)
        found = f"numbers in {numeric} rows and {listed} in {other} (the first is row {first})"
        fix = remedy.format(words=",".join(words[:5]))
        raise data_error(where, found, "numbers or categories, not both", fix)
