"""Tables as columns: float64 with NaN for missing values, or text with "" for them."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedloom.core.errors import UserError
from fedloom.data.sources.errors import data_error, missing_extra, shortened
from fedloom.data.sources.memory import check_fits_in_memory

Frame = dict[str, np.ndarray]

MISSING = ("", "?", "na", "n/a", "nan", "null", "none")
SEPARATORS = ",;\t"
BYTES_PER_CELL = 64  # while a table is read: a Python object and its place in a list


def read_frame(file: Path) -> Frame:
    """The columns of a CSV, TSV or Parquet file; those of CSV and TSV as text."""
    frame = READERS[file.suffix.lower()](file)
    if not frame or not len(next(iter(frame.values()))):
        expected, remedy = "a header and at least one row", "check that the file is complete"
        raise data_error(file, "no rows", expected, remedy)
    return frame


def _read_csv(file: Path) -> Frame:
    try:
        text = file.read_text(encoding="utf-8-sig")
        separator = max(SEPARATORS, key=text.partition("\n")[0].count)
        lines = csv.reader(io.StringIO(text), delimiter=separator, strict=True)
        rows = [[value.strip() for value in line] for line in lines if line]
    except (UnicodeDecodeError, csv.Error) as error:
        found, remedy = f"no readable text ({error})", "save it again as CSV in UTF-8"
        raise data_error(file, found, "a CSV file in UTF-8", remedy) from None
    header = rows[0] if rows else []
    _check_header(header, file)
    _check_lengths(rows, file)
    return {
        name: _without_missing(np.array([row[i] for row in rows[1:]], dtype=str))
        for i, name in enumerate(header)
    }


def _without_missing(values: np.ndarray) -> np.ndarray:
    """The text with "" for every spelling of a missing value."""
    return np.where(np.isin(np.char.lower(values), MISSING), "", values)


def _check_header(header: Sequence[str], file: Path) -> None:
    if header and all(_is_number(name) for name in header):
        found = f"numbers ({shortened(header, 4)}) in the first line"
        raise data_error(file, found, "the names of the columns", "add a header line")
    if "" in header:
        found = f"no name for column {header.index('') + 1}"
        remedy = "name it, or write the table without its row numbers"
        raise data_error(file, found, "a name for each", remedy)
    duplicates = sorted({name for name in header if header.count(name) > 1})
    if duplicates:
        found = f"column '{duplicates[0]}' twice"
        raise data_error(file, found, "each name once", "rename one of them")


def _check_lengths(rows: Sequence[Sequence[str]], file: Path) -> None:
    for number, row in enumerate(rows, start=1):
        if len(row) != len(rows[0]):
            found = f"row {number} of length {len(row)}"
            expected = f"{len(rows[0])} as the header"
            raise data_error(file, found, expected, "fill or quote the row")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read_parquet(file: Path) -> Frame:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise missing_extra("reading Parquet", "pyarrow", "tables") from None
    try:
        facts = pyarrow.parquet.read_metadata(file)
        cells = facts.num_rows * facts.num_columns
        check_fits_in_memory(cells * BYTES_PER_CELL, file, f"a table of {cells:,} cells")
        table = pyarrow.parquet.read_table(file)
    except UserError:
        raise
    except (pyarrow.ArrowException, OSError) as error:
        found = f"no readable Parquet ({error})"
        raise data_error(file, found, "a Parquet file", "write it again") from None
    return {name: _from_arrow(table.column(name), name, file) for name in table.column_names}


def _from_arrow(column: Any, name: str, file: Path) -> np.ndarray:
    import pyarrow
    from pyarrow import types

    is_numeric = (types.is_boolean, types.is_integer, types.is_floating, types.is_null)
    if any(check(column.type) for check in is_numeric):
        if types.is_boolean(column.type):
            column = column.cast("int8")
        numbers = [np.nan if value is None else value for value in column.to_pylist()]
        return np.array(numbers, dtype=np.float64)
    try:
        strings = [value or "" for value in column.cast("string").to_pylist()]
    except (pyarrow.ArrowException, ValueError):
        found = f"column '{name}' of type {column.type}"
        remedy = "leave the column out of the file"
        raise data_error(file, found, "numbers or text", remedy) from None
    return _without_missing(np.array(strings, dtype=str))


READERS: dict[str, Callable[[Path], Frame]] = {
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".parquet": _read_parquet,
}


def concatenated(frames: Sequence[Frame], files: Sequence[Path]) -> Frame:
    """The rows of all files; every file must have the columns of the first."""
    for frame, file in zip(frames, files, strict=True):
        if differing := sorted(frame.keys() ^ frames[0].keys()):
            expected = f"the columns of {files[0].name}"
            remedy = f"add or remove: {shortened(differing)}"
            raise data_error(file, shortened(frame), expected, remedy)
    return {name: _joined_column([frame[name] for frame in frames]) for name in frames[0]}


def _joined_column(pieces: Sequence[np.ndarray]) -> np.ndarray:
    """The pieces of one column as numbers if all of its values are numbers, else as text."""
    if all(piece.dtype.kind == "f" for piece in pieces):
        return np.concatenate(pieces)
    column = np.concatenate([as_text(piece) for piece in pieces])
    try:
        return np.where(column == "", "nan", column).astype(np.float64)
    except ValueError:
        return column


def as_text(column: np.ndarray) -> np.ndarray:
    """A column as text, whole numbers without a decimal point.

    >>> as_text(np.array([1.0, 2.5, np.nan])).tolist()
    ['1', '2.5', '']
    """
    if column.dtype.kind != "f":
        return column
    return np.array([_number_as_text(value) for value in column.tolist()], dtype=str)


def _number_as_text(value: float) -> str:
    if np.isnan(value):
        return ""
    return str(int(value)) if np.isfinite(value) and value == int(value) else repr(value)


def is_missing(column: np.ndarray) -> np.ndarray:
    """The mask of missing values."""
    missing: np.ndarray = np.isnan(column) if column.dtype.kind == "f" else column == ""
    return missing
