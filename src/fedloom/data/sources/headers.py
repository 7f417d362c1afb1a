"""The header of a CSV file: the names of its columns, checked not to be a row of data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from fedloom.data.sources.errors import data_error, shortened
from fedloom.data.sources.number_format import looks_like_number

Rows = list[list[str]]

TAKE_FIRST_LINE = "yes"
NEVER_NAMES = ("yes", "no", "true", "false")  # of a column
REMEDY = (
    "add a header line, or name the columns with header=NAME,NAME,... "
    f"(header={TAKE_FIRST_LINE} if the first line holds names after all)"
)


def split_header(rows: Rows, header: str | None, file: Path) -> tuple[list[str], Rows]:
    """The names of the columns, and the rows of data.

    header: the names, comma-separated, if the file has none; "yes" if its first line is one even
    if it looks like data; None if that is to be found out.
    """
    if not rows:
        return [], []
    if header is None or header == TAKE_FIRST_LINE:
        names, data = rows[0], rows[1:]
        if header is None:
            _check_is_no_data(names, data, file)
    else:
        names, data = [name.strip() for name in header.split(",")], rows
        if len(names) != len(rows[0]):
            found, expected = f"{len(rows[0])} columns", f"the {len(names)} that header= names"
            raise data_error(file, found, expected, "name every column")
    _check_names(names, file)
    return names, data


def _check_is_no_data(names: Sequence[str], data: Rows, file: Path) -> None:
    expected = "the names of the columns"
    numbers = [name for name in names if looks_like_number(name)]
    if numbers and (len(numbers) == len(names) or not _are_positions(numbers)):
        found = f"numbers ({shortened(numbers, 4)}) in the first line, which looks like data"
        raise data_error(file, found, expected, REMEDY)
    again = [name for i, name in enumerate(names) if any(row[i] == name for row in data)]
    if 2 * len(again) >= len(names) and not all(looks_like_number(name) for name in again):
        found = f"values of the same columns ({shortened(again, 4)}) in the first line"
        raise data_error(file, f"{found}, which looks like data", expected, REMEDY)


def _are_positions(numbers: Sequence[str]) -> bool:
    """Whether these are increasing whole numbers, as columns without a name or years have them."""
    if not all(number.isdecimal() for number in numbers):
        return False
    values = [int(number) for number in numbers]
    return all(a < b for a, b in pairwise(values))


def _check_names(header: Sequence[str], file: Path) -> None:
    if "" in header:
        found = f"no name for column {header.index('') + 1}"
        remedy = "name it, or write the table without its row numbers"
        raise data_error(file, found, "a name for each", remedy)
    duplicates = sorted({name for name in header if header.count(name) > 1})
    if duplicates:
        found = f"column '{duplicates[0]}' twice"
        raise data_error(file, found, "each name once", "rename one of them")


def doubt_about_header(columns: Mapping[str, np.ndarray]) -> str | None:
    """Why the first line may be a row of data after all, given the columns of text under it.

    A name above a column of numbers cannot be a value of that column, so there is no doubt then.
    """
    if any(_are_numbers(column) for column in columns.values()):
        return None
    again = [name for name, column in columns.items() if name in column]
    answers = [name for name in columns if name.lower() in NEVER_NAMES]
    if not (again or answers):
        return None
    reason = f"{shortened(map(repr, again or answers), 4)} " + (
        "also occurs below it in the same column" if again else "is an odd name of a column"
    )
    return (
        f"the first line may be a row of data: {reason}; if the file has no header, name the "
        f"columns with header=NAME,NAME,... (header={TAKE_FIRST_LINE} if it has one)"
    )


def _are_numbers(column: np.ndarray) -> bool:
    cells = np.unique(column[column != ""]).tolist()
    return bool(cells) and all(map(looks_like_number, cells))
