"""Tables as columns: float64 with NaN for missing values, or text with "" for them."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedloom.core.errors import UserError
from fedloom.data.sources.errors import data_error, missing_extra, shortened
from fedloom.data.sources.headers import split_header
from fedloom.data.sources.memory import check_fits_in_memory
from fedloom.data.sources.missing_values import without_missing

Frame = dict[str, np.ndarray]

SEPARATORS = ",;\t"
BYTES_PER_CELL = 64  # while a table is read: a Python object and its place in a list


def read_frame(file: Path, header: str | None = None, missing: Collection[str] = ()) -> Frame:
    """The columns of a CSV, TSV or Parquet file; those of CSV and TSV as text.

    header: see headers.split_header. missing: words that stand for a missing value, apart from the
    usual ones.
    """
    frame = READERS[file.suffix.lower()](file, header)
    if not frame or not len(next(iter(frame.values()))):
        expected, remedy = "a header and at least one row", "check that the file is complete"
        raise data_error(file, "no rows", expected, remedy)
    return {name: without_missing(column, missing) for name, column in frame.items()}


def _read_csv(file: Path, header: str | None) -> Frame:
    try:
        text = file.read_text(encoding="utf-8-sig")
        separator = max(SEPARATORS, key=text.partition("\n")[0].count)
        lines = csv.reader(io.StringIO(text), delimiter=separator, strict=True)
        rows = [[value.strip() for value in line] for line in lines if line]
    except (UnicodeDecodeError, csv.Error) as error:
        found, remedy = f"no readable text ({error})", "save it again as CSV in UTF-8"
        raise data_error(file, found, "a CSV file in UTF-8", remedy) from None
    _check_lengths(rows, file)
    names, data = split_header(rows, header, file)
    return {name: np.array([row[i] for row in data], dtype=str) for i, name in enumerate(names)}


def _check_lengths(rows: Sequence[Sequence[str]], file: Path) -> None:
    for number, row in enumerate(rows, start=1):
        if len(row) != len(rows[0]):
            found = f"row {number} of length {len(row)}"
            expected = f"{len(rows[0])} as the header"
            raise data_error(file, found, expected, "fill or quote the row")


def _read_parquet(file: Path, header: str | None) -> Frame:
    if header is not None:
        remedy = "leave out header="
        raise data_error(file, "a file that names its columns", "a CSV file with header=", remedy)
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
    return np.array(strings, dtype=str)


READERS: dict[str, Callable[[Path, str | None], Frame]] = {
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
