"""Tables as columns: float64 with NaN for missing values, or text with "" for them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedloom.core.errors import UserError
from fedloom.data.sources.csv_files import read_csv
from fedloom.data.sources.errors import data_error, missing_extra
from fedloom.data.sources.memory import check_fits_in_memory
from fedloom.data.sources.missing_values import without_missing
from fedloom.data.sources.number_format import PLAIN, NumberFormat

Frame = dict[str, np.ndarray]

BYTES_PER_CELL = 64  # while a table is read: a Python object and its place in a list


@dataclass(frozen=True)
class FileTable:
    """The columns of one file, and for each value the row of the file where it stands."""

    file: Path
    frame: Frame
    rows: np.ndarray


def read_table(
    file: Path,
    header: str | None = None,
    missing: Collection[str] = (),
    form: NumberFormat = PLAIN,
) -> FileTable:
    """The columns of a CSV, TSV or Parquet file; those of CSV and TSV as text.

    header: see headers.split_header. missing: words that stand for a missing value, apart from the
    usual ones. form: how numbers are written in columns of text.
    """
    frame, rows = READERS[file.suffix.lower()](file, header)
    if not frame or not len(rows):
        expected, remedy = "a header and at least one row", "check that the file is complete"
        raise data_error(file, "no rows", expected, remedy)
    filled = {name: without_missing(column, missing, form) for name, column in frame.items()}
    return FileTable(file, filled, rows)


def _read_parquet(file: Path, header: str | None) -> tuple[Frame, np.ndarray]:
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
    frame = {name: _from_arrow(table.column(name), name, file) for name in table.column_names}
    return frame, np.arange(1, table.num_rows + 1)


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


READERS: dict[str, Callable[[Path, str | None], tuple[Frame, np.ndarray]]] = {
    ".csv": read_csv,
    ".tsv": read_csv,
    ".parquet": _read_parquet,
}


def concatenated(tables: Sequence[FileTable], form: NumberFormat = PLAIN) -> Frame:
    """The rows of all files, which have the same columns."""
    return {
        name: _joined_column([table.frame[name] for table in tables], form)
        for name in tables[0].frame
    }


def _joined_column(pieces: Sequence[np.ndarray], form: NumberFormat) -> np.ndarray:
    """The pieces of one column as numbers if all of its values are numbers, else as text."""
    numbers = [_as_numbers(piece, form) for piece in pieces]
    if all(piece is not None for piece in numbers):
        return np.concatenate([piece for piece in numbers if piece is not None])
    return np.concatenate([as_text(piece) for piece in pieces])


def _as_numbers(column: np.ndarray, form: NumberFormat) -> np.ndarray | None:
    """The column as float64 with NaN for missing values; None if a value is no number."""
    if column.dtype.kind == "f":
        return column
    cells, places = np.unique(column, return_inverse=True)
    plain = ["nan" if cell == "" else form.plain(cell) for cell in cells.tolist()]
    if any(text is None for text in plain):
        return None
    return np.array(plain, dtype=str).astype(np.float64)[places]


def as_text(column: np.ndarray) -> np.ndarray:
    """A column as text, whole numbers without a decimal point.

    >>> as_text(np.array([1.0, 2.5, np.nan])).tolist()
    ['1', '2.5', '']
    """
    if column.dtype.kind != "f":
        return column
    texts = ["" if np.isnan(value) else as_category(value) for value in column.tolist()]
    return np.array(texts, dtype=str)


def as_category(value: Any) -> str:
    """A value as the name of a category, a whole number without a decimal point.

    >>> as_category(1.0), as_category(2.5), as_category(True), as_category("1.0")
    ('1', '2.5', 'True', '1.0')
    """
    is_whole = isinstance(value, (float, np.floating)) and value.is_integer()
    return str(int(value)) if is_whole else str(value)


def is_missing(column: np.ndarray) -> np.ndarray:
    """The mask of missing values."""
    missing: np.ndarray = np.isnan(column) if column.dtype.kind == "f" else column == ""
    return missing
