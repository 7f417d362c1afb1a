"""CSV and TSV files as columns of text, with the row of the file that each value comes from."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from fedloom.data.sources.errors import data_error
from fedloom.data.sources.headers import split_header

# In the order in which they are tried: a file separated by semicolons may hold decimal commas.
SEPARATORS = "\t;|,"
SAMPLED_ROWS = 50  # of which all must have the same length
SAMPLED_LINES = 1000  # that are searched for these rows: a quoted cell may have several lines


def read_csv(file: Path, header: str | None) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The columns, and for each value the row of the file, as a spreadsheet counts them.

    header: see headers.split_header.
    """
    try:
        text = file.read_text(encoding="utf-8-sig")
        lines = csv.reader(io.StringIO(text), delimiter=separator_of(text), strict=True)
        numbered = [(number, line) for number, line in enumerate(lines, start=1) if any(line)]
    except (UnicodeDecodeError, csv.Error) as error:
        found, remedy = f"no readable text ({error})", "save it again as CSV in UTF-8"
        raise data_error(file, found, "a CSV file in UTF-8", remedy) from None
    rows = [[value.strip() for value in line] for _, line in numbered]
    _check_lengths(rows, [number for number, _ in numbered], file)
    names, data = split_header(rows, header, file)
    numbers = np.array([number for number, _ in numbered[len(rows) - len(data) :]], dtype=np.int64)
    frame = {name: np.array([row[i] for row in data], dtype=str) for i, name in enumerate(names)}
    return frame, numbers


def separator_of(text: str) -> str:
    """The first separator that cuts the first rows into equal numbers of cells, at least two.

    If there is none, the most frequent one in the first line.

    >>> separator_of("price;share\\n1,5;2,5\\n"), separator_of("a,b;c\\n1,2\\n")
    (';', ',')
    """
    first_lines = text.split("\n", SAMPLED_LINES)[:SAMPLED_LINES]
    for separator in SEPARATORS:
        if _cuts_evenly(first_lines, separator):
            return separator
    return max(reversed(SEPARATORS), key=first_lines[0].count)


def _cuts_evenly(lines: Sequence[str], separator: str) -> bool:
    rows = csv.reader([f"{line}\n" for line in lines], delimiter=separator, strict=True)
    try:
        lengths = {len(row) for row in islice(filter(any, rows), SAMPLED_ROWS)}
    except csv.Error:
        return False
    return len(lengths) == 1 and lengths != {1}


def _check_lengths(rows: Sequence[Sequence[str]], numbers: Sequence[int], file: Path) -> None:
    for number, row in zip(numbers, rows, strict=True):
        if len(row) != len(rows[0]):
            found = f"row {number} of length {len(row)}"
            expected = f"{len(rows[0])} as the header"
            raise data_error(file, found, expected, "fill or quote the row")
