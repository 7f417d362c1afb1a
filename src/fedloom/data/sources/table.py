"""Tables: a CSV, TSV or Parquet file, a pair train.* and test.*, or one file per client."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from fedloom.core.errors import unknown_name
from fedloom.core.spec import Param
from fedloom.data.dataset import Dataset
from fedloom.data.sources import columns as encoding
from fedloom.data.sources import holdout
from fedloom.data.sources.build import Name, build_dataset, default_name, raw_split
from fedloom.data.sources.client_column import check_ids_repeat
from fedloom.data.sources.column_names import Columns, MissingColumns, parse_columns
from fedloom.data.sources.errors import data_error, folder_listing, shortened
from fedloom.data.sources.frames import READERS, Frame, as_text, is_missing
from fedloom.data.sources.missing_values import (
    Remedies,
    check_no_stray_words,
    numbers_among_words,
)
from fedloom.data.sources.number_format import Decimal, NumberFormat, Thousands, number_format
from fedloom.data.sources.table_rows import ReadingOptions, TableRows, read_rows
from fedloom.data.sources.unscaled import Unscaled

LOOKS_FOR = (
    "a .csv, .tsv or .parquet file, train.* and test.* in a folder, "
    "or a folder with one such file per client"
)
TARGETS = ("label", "target", "y")
# A target with more distinct values than this, and than a tenth of the rows, is not a class.
MAX_CLASSES = 100

Target = Annotated[
    str | None, Param("column to predict; by default label, target or y, else the last column")
]
Client = Annotated[
    str | None,
    Param("column that names the client of a row; by default its file, if each client has one"),
]
Categorical = Annotated[
    str, Param("columns to treat as categories even if they hold numbers, comma-separated")
]
Drop = Annotated[str, Param("columns to leave out, comma-separated")]
Header = Annotated[
    str | None,
    Param(
        "names of the columns, comma-separated, if a CSV file has no header; "
        "yes if its first line is the header although it looks like data"
    ),
]
Missing = Annotated[
    str | int | float,
    Param("what stands for a missing value, comma-separated, apart from ?, NA, null and the like"),
]

REGRESSION = (
    "it looks like a target for regression, and fedloom supports classification only: "
    "name another column with target=, or sort the values into classes first"
)


def detect(path: Path) -> bool:
    """Whether it is a table or a folder with tables."""
    return bool(_table_files(path))


def _read_labelled(
    path: Path,
    name: Name = None,
    target: Target = None,
    client: Client = None,
    categorical: Categorical = "",
    drop: Drop = "",
    test_share: holdout.TestShare = 0.2,
    header: Header = None,
    na: Missing = "",
    decimal: Decimal = ".",
    thousands: Thousands = "",
    columns: Columns = "",
    missing_columns: MissingColumns = "refuse",
) -> tuple[_LabelledRows, float]:
    """The rows with their classes and clients, and the share to hold out."""
    if not (files := _table_files(path)):
        raise data_error(path, folder_listing(path), LOOKS_FOR, "give a table")
    options = ReadingOptions(
        number_format(decimal, thousands),
        header,
        _listed(str(na)),
        parse_columns(columns),
        _listed(drop),
        missing_columns == "fill",
    )
    rows = read_rows(files, options, path)
    samples = _labelled(rows, target, client, _listed(categorical), options.form, path)
    return samples, test_share


@wraps(_read_labelled, assigned=("__annotations__",))  # the options are the same
def read_unscaled(path: Path, name: str | None = None, **options: Any) -> Unscaled:
    """The columns of a table as they are, and its target as classes, of which one is enough."""
    samples, test_share = _read_labelled(path, name, **options)
    return _unscaled(samples, test_share, path)


@wraps(_read_labelled, assigned=("__annotations__",))
def read(path: Path, name: str | None = None, **options: Any) -> Dataset:
    """The data set of a table: its columns as features (columns.py) and its target as classes."""
    samples, test_share = _read_labelled(path, name, **options)
    _check_two_classes(samples, path)
    return _dataset(_unscaled(samples, test_share, path), name or default_name(path), path)


@dataclass(frozen=True)
class _LabelledRows:
    """The rows of a table with their classes and clients apart from the features."""

    rows: TableRows
    features: Frame
    target: str
    y: np.ndarray
    classes: tuple[str, ...]
    users: np.ndarray | None
    categories: list[str]
    warnings: list[str]


def _labelled(
    rows: TableRows,
    target: str | None,
    client: str | None,
    categories: list[str],
    form: NumberFormat,
    path: Path,
) -> _LabelledRows:
    _check_columns(categories, rows.frame, path)
    target = target or _default_target(rows, path)
    warnings = _check_words(rows, {*categories, client}, target, form, path)
    frame = dict(rows.frame)
    y, classes = _pop_classes(frame, target, rows, path)
    users = _pop_clients(frame, client, rows, path) if client else None
    if users is None and _is_file_per_client(rows.files):
        users = rows.stems
    return _LabelledRows(rows, frame, target, y, classes, users, categories, warnings)


def _unscaled(samples: _LabelledRows, test_share: float, path: Path) -> Unscaled:
    test, test_made = _test_rows(samples.rows, samples.y, samples.users, test_share)
    about = {
        "format": "table",
        "source": str(path),
        "target": f"column '{samples.target}'",
        "test split": test_made,
        "remarks": json.dumps([*samples.rows.remarks, *samples.warnings]),
    }
    is_numbered = samples.rows.frame[samples.target].dtype.kind == "f"
    return Unscaled(
        "table",
        samples.features,
        samples.y,
        samples.classes,
        is_numbered,
        samples.users,
        test,
        about,
        samples.categories,
    )


def _dataset(samples: Unscaled, name: str, path: Path) -> Dataset:
    frame, y, users, test = samples.x, samples.y, samples.users, samples.test
    assert isinstance(frame, dict)
    categories = samples.categorical
    features = encoding.encode(_rows(frame, ~test), _rows(frame, test), categories, path)
    facts = encoding.column_facts(frame, features, categories)
    about = {
        **samples.about,
        "columns": json.dumps([feature.described() for feature in features]),
        "features": json.dumps(facts),
    }
    train, held_out = (
        raw_split(x, y[rows], path, None if users is None else users[rows])
        for x, rows in zip(encoding.feature_matrices(features), (~test, test), strict=True)
    )
    return build_dataset(name, "table", train, held_out, about, samples.classes)


def _check_two_classes(samples: _LabelledRows, path: Path) -> None:
    if len(samples.classes) < 2:
        where = f"{path}, column '{samples.target}'"
        found = f"the one class {shortened(samples.classes)}"
        raise data_error(where, found, "at least two", "name another column with target=")


def _test_rows(
    rows: TableRows, y: np.ndarray, users: np.ndarray | None, share: float
) -> tuple[np.ndarray, str]:
    """The mask of the test split, and how it was made."""
    if _is_train_test_pair(rows.files):
        return rows.stems == "test", "the file test"
    where = rows.files[0] if len(rows.files) == 1 else rows.files[0].parent
    mask = holdout.held_out_mask(y, users, share, where)
    return mask, holdout.description(share, users is not None)


def _table_files(path: Path) -> list[Path]:
    candidates = sorted(path.iterdir()) if path.is_dir() else [path]
    return [p for p in candidates if p.suffix.lower() in READERS and p.is_file()]


def _is_train_test_pair(files: Sequence[Path]) -> bool:
    return sorted(file.stem for file in files) == ["test", "train"]


def _is_file_per_client(files: Sequence[Path]) -> bool:
    return len(files) > 1 and not _is_train_test_pair(files)


def _rows(frame: Frame, rows: np.ndarray) -> Frame:
    return {name: column[rows] for name, column in frame.items()}


def _listed(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


def _check_columns(names: list[str], frame: Frame, path: Path) -> None:
    for name in names:
        if name not in frame:
            raise unknown_name(f"column of {path}", name, frame)


def _check_words(
    rows: TableRows, exempt: set[str | None], target: str, form: NumberFormat, path: Path
) -> list[str]:
    """Refuse columns of numbers with words among them; warnings where it may be the other way."""
    warnings = []
    for name, column in rows.frame.items():
        if name in exempt:
            continue
        where = f"{path}, column '{name}'"
        check_no_stray_words(column, where, _remedies(name), form, rows.row)
        if name != target and (oddity := numbers_among_words(column, form)):
            meant = f"if that is meant, set categorical='{name}'"
            warnings.append(f"warning: column '{name}': {oddity}; {meant}")
    return warnings


def _remedies(column: str) -> Remedies:
    categories = f"if the column holds categories, set categorical='{column}'"
    return Remedies(
        words="if they stand for missing values, set na={words}; "
        f"{categories}; or correct them, or leave the column out with drop='{column}'",
        number_format=f"{{options}}; {categories}",
    )


def _pop_column(frame: Frame, name: str, path: Path) -> np.ndarray:
    _check_columns([name], frame, path)
    return frame.pop(name)


def _default_target(rows: TableRows, path: Path) -> str:
    """The column named label, target or y, else the last one that every file has."""
    if not rows.frame:
        raise data_error(path, "no column left", "features and a target", "drop fewer columns")
    by_lower_case = {name.lower(): name for name in rows.frame}
    for candidate in TARGETS:
        if candidate in by_lower_case:
            return by_lower_case[candidate]
    everywhere = [name for name in rows.frame if name not in rows.lacking]
    return [*rows.frame, *everywhere][-1]


def _check_in_every_file(name: str, rows: TableRows, path: Path, option: str) -> None:
    if absent := rows.lacking.get(name):
        found = f"no column '{name}' in {shortened(absent)}"
        remedy = f"add it, or name another column with {option}="
        raise data_error(path, found, "it in every file", remedy)


def _pop_clients(frame: Frame, client: str, rows: TableRows, path: Path) -> np.ndarray:
    users = _pop_column(frame, client, path)
    _check_in_every_file(client, rows, path, "client")
    if (missing := is_missing(users)).any():
        found = f"{int(missing.sum())} rows without a client in column '{client}'"
        first = rows.row(int(missing.argmax()))
        raise data_error(path, f"{found} (the first is {first})", "one in each row", "fill them in")
    check_ids_repeat(users, f"{path}, column '{client}'", frame)
    return as_text(users)


def _pop_classes(
    frame: Frame, target: str, rows: TableRows, path: Path
) -> tuple[np.ndarray, tuple[str, ...]]:
    """The target as class numbers, and the class names in the order of their values."""
    labels = _pop_column(frame, target, path)
    _check_in_every_file(target, rows, path, "target")
    where = f"{path}, column '{target}'"
    if (missing := is_missing(labels)).any():
        found = f"{int(missing.sum())} rows without a label"
        first = rows.row(int(missing.argmax()))
        remedy = "fill them in or remove them"
        raise data_error(where, f"{found} (the first is {first})", "one in each row", remedy)
    levels, y = np.unique(labels, return_inverse=True)
    names = as_text(levels)
    if _is_measured(labels, len(levels)):
        found = f"{len(levels)} different values ({shortened(names, 3)})"
        raise data_error(where, f"{found} in {len(y)} rows", "classes", REGRESSION)
    return y.astype(np.int64), tuple(names.tolist())


def _is_measured(labels: np.ndarray, distinct: int) -> bool:
    """Whether these are no classes: they have fractions, or nearly every row has its own."""
    if labels.dtype.kind == "f" and (labels != np.floor(labels)).any():
        return True
    return distinct > max(MAX_CLASSES, len(labels) // 10) or distinct == len(labels) > 2
