"""Cells that stand for a missing value, and columns of numbers with other words among them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedloom.core.errors import UserError
from fedloom.data.sources.errors import data_error, shortened
from fedloom.data.sources.number_format import (
    PLAIN,
    NumberFormat,
    better_formats,
    count_numbers,
    format_hint,
    is_number,
)

MISSING = ("", "?", "na", "n/a", "nan", "null", "none")
MANY_NUMBERS = 0.2  # a share of numbers among words from which on it is worth a warning
CELLS_NAMED = 5  # in a message


def without_missing(
    column: np.ndarray, more: Collection[str] = (), form: NumberFormat = PLAIN
) -> np.ndarray:
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
        "" if c.lower() in words or _is_one_of(form.plain(c), numbers) else c
        for c in cells.tolist()
    ]
    return np.array(kept, dtype=str)[places]


def is_missing_value(value: Any) -> bool:
    """Whether a value from Python is None, NaN, or what pandas uses instead."""
    is_nan = isinstance(value, float) and value != value  # also of NumPy's float64
    return value is None or is_nan or type(value).__name__ in ("NAType", "NaTType")


def _is_one_of(number: str | None, numbers: Collection[float]) -> bool:
    return bool(numbers) and number is not None and float(number) in numbers


def _row_number(place: int) -> str:
    return f"row {place + 1}"


@dataclass(frozen=True)
class Remedies:
    """What to do about a column of numbers with words among them, or in another number format.

    {words} becomes the list of the words; {options} which options make the values numbers.
    """

    words: str
    number_format: str


def check_no_stray_words(
    column: np.ndarray,
    where: object,
    remedies: Remedies,
    form: NumberFormat = PLAIN,
    row: Callable[[int], str] = _row_number,
) -> None:
    """Refuse a text column in which at least half of the cells are numbers.

    As text it would become categories, which is hardly meant. `row` names the row at a place of
    the column.
    """
    if column.dtype.kind == "f":
        return
    cells = _counted(column)
    if better := better_formats(cells, form):
        raise _other_format(cells, where, remedies, form, better)
    numeric = count_numbers(cells, form)
    other = sum(cells.values()) - numeric
    if other and numeric >= other:
        words = [cell for cell in cells if form.plain(cell) is None]
        listed = shortened((f"'{word}'" for word in words), CELLS_NAMED)
        places = np.flatnonzero(np.isin(column, words)).tolist()
        named = shortened((f"{row(i)}: '{column[i]}'" for i in places), CELLS_NAMED)
        found = f"numbers in {numeric} rows and {listed} in {other} ({named})"
        fix = remedies.words.replace("{words}", ",".join(words[:CELLS_NAMED]))
        raise data_error(where, found, "numbers or categories, not both", fix)


def _counted(column: np.ndarray) -> dict[str, int]:
    """The distinct cells that are not missing, sorted, and how often each occurs."""
    cells, counts = np.unique(column[column != ""], return_counts=True)
    return dict(zip(cells.tolist(), counts.tolist(), strict=True))


def _other_format(
    cells: Mapping[str, int],
    where: object,
    remedies: Remedies,
    form: NumberFormat,
    better: Sequence[NumberFormat],
) -> UserError:
    odd = [c for c in cells if form.plain(c) is None and better[0].plain(c) is not None]
    found = f"numbers written as {shortened(map(repr, odd), 3)}"
    expected = f"numbers with {form}" if form != PLAIN else "numbers such as 1234.5"
    hint = format_hint(odd[0], better, form)
    remedy = remedies.number_format.replace("{options}", hint)
    return data_error(where, found, expected, remedy)


def numbers_among_words(column: np.ndarray, form: NumberFormat = PLAIN) -> str | None:
    """What is odd about a text column with numbers in it, if they are many but not most."""
    if column.dtype.kind == "f":
        return None
    cells = _counted(column)
    numeric, total = count_numbers(cells, form), sum(cells.values())
    if not total or numeric < MANY_NUMBERS * total:
        return None
    numbers = [cell for cell in cells if form.plain(cell) is not None]
    words = [cell for cell in cells if form.plain(cell) is None]
    return (
        f"{numeric} of {total} values are numbers ({shortened(numbers, 3)}), "
        f"the others words ({shortened(words, 3)}); all are taken as categories"
    )
