"""Tables as columns: float64 with NaN where a value is missing, or text with "" there."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedloom.data.sources.errors import bad, missing_extra, some

Frame = dict[str, np.ndarray]

MISSING = ("", "?", "na", "n/a", "nan", "null", "none")
SEPARATORS = ",;\t"


def load(file: Path) -> Frame:
    """The columns of a CSV, TSV or Parquet file, as they are written."""
    frame = READERS[file.suffix.lower()](file)
    if not frame or not len(next(iter(frame.values()))):
        raise bad(
            file, "no rows", "a header and at least one row", "check that the file is complete"
        )
    return frame


def _csv(file: Path) -> Frame:
    try:
        text = file.read_text(encoding="utf-8-sig")
        separator = max(SEPARATORS, key=text.partition("\n")[0].count)
        rows = [
            [v.strip() for v in row]
            for row in csv.reader(io.StringIO(text), delimiter=separator, strict=True)
            if row
        ]
    except (UnicodeDecodeError, csv.Error) as error:
        raise bad(
            file,
            f"no readable text ({error})",
            "a CSV file in UTF-8",
            "save it again as CSV in UTF-8",
        ) from None
    header = rows[0] if rows else []
    _check_header(header, file)
    if wrong := [i for i, row in enumerate(rows) if len(row) != len(header)]:
        found = f"row {wrong[0] + 1} of length {len(rows[wrong[0]])}"
        raise bad(file, found, f"{len(header)} as the header", "fill or quote the row")
    return {
        name: _plain(np.array([row[i] for row in rows[1:]], dtype=str))
        for i, name in enumerate(header)
    }


def _plain(values: np.ndarray) -> np.ndarray:
    return np.where(np.isin(np.char.lower(values), MISSING), "", values)


def _check_header(header: Sequence[str], file: Path) -> None:
    if header and all(_is_number(name) for name in header):
        raise bad(
            file,
            f"numbers ({some(header, 4)}) in the first line",
            "the names of the columns",
            "write a header line",
        )
    if "" in header:
        found = f"no name for column {header.index('') + 1}"
        raise bad(
            file, found, "a name for each", "name it, or write the table without its row numbers"
        )
    if twice := sorted({name for name in header if header.count(name) > 1}):
        raise bad(file, f"column '{twice[0]}' twice", "each name once", "rename one of them")


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _parquet(file: Path) -> Frame:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise missing_extra("reading Parquet", "pyarrow", "tables") from None
    try:
        table = pyarrow.parquet.read_table(file)
    except (pyarrow.ArrowException, OSError) as error:
        raise bad(
            file, f"no readable Parquet ({error})", "a Parquet file", "write it again"
        ) from None
    return {name: _arrow(table.column(name), name, file) for name in table.column_names}


def _arrow(column: Any, name: str, file: Path) -> np.ndarray:
    import pyarrow
    from pyarrow import types

    kind = column.type
    if (
        types.is_boolean(kind)
        or types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_null(kind)
    ):
        numbers = column.cast("int8") if types.is_boolean(kind) else column
        return np.array([np.nan if v is None else v for v in numbers.to_pylist()], dtype=np.float64)
    try:
        return _plain(np.array([v or "" for v in column.cast("string").to_pylist()], dtype=str))
    except (pyarrow.ArrowException, ValueError):
        raise bad(
            file,
            f"column '{name}' of type {kind}",
            "numbers or text",
            "leave the column out of the file",
        ) from None


READERS: dict[str, Callable[[Path], Frame]] = {".csv": _csv, ".tsv": _csv, ".parquet": _parquet}


def join(frames: Sequence[Frame], files: Sequence[Path]) -> Frame:
    """The rows of all files, one after the other; every file must have the columns of the first."""
    for frame, file in zip(frames, files, strict=True):
        if differing := sorted(frame.keys() ^ frames[0].keys()):
            raise bad(
                file,
                some(frame),
                f"the columns of {files[0].name}",
                f"add or remove: {some(differing)}",
            )
    return {name: _typed(_concatenated([f[name] for f in frames])) for name in frames[0]}


def _concatenated(columns: Sequence[np.ndarray]) -> np.ndarray:
    numeric = all(c.dtype.kind == "f" for c in columns)
    return np.concatenate(columns if numeric else [words(c) for c in columns])


def _typed(column: np.ndarray) -> np.ndarray:
    """A column of text whose words are all numbers, as numbers."""
    if column.dtype.kind == "f":
        return column
    try:
        return np.where(column == "", "nan", column).astype(np.float64)
    except ValueError:
        return column


def words(column: np.ndarray) -> np.ndarray:
    """A column as text, whole numbers without a point.

    >>> words(np.array([1.0, 2.5, np.nan])).tolist()
    ['1', '2.5', '']
    """
    return (
        np.array([_word(v) for v in column.tolist()], dtype=str)
        if column.dtype.kind == "f"
        else column
    )


def _word(value: float) -> str:
    if np.isnan(value):
        return ""
    return str(int(value)) if np.isfinite(value) and value == int(value) else repr(value)


def gaps(column: np.ndarray) -> np.ndarray:
    """Where a value is missing."""
    missing: np.ndarray = np.isnan(column) if column.dtype.kind == "f" else column == ""
    return missing
