"""Tables: a CSV, TSV or Parquet file, a pair train.* and test.*, or one file per client."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from fedloom.core.errors import UserError
from fedloom.core.spec import Param
from fedloom.data.dataset import Dataset
from fedloom.data.sources import columns as encoding
from fedloom.data.sources import holdout
from fedloom.data.sources.build import Name, build_dataset, default_name, raw_split
from fedloom.data.sources.client_column import check_ids_repeat
from fedloom.data.sources.column_names import Columns, MissingColumns, parse_columns
from fedloom.data.sources.errors import data_error, folder_listing
from fedloom.data.sources.frames import READERS, Frame, as_text, is_missing
from fedloom.data.sources.missing_values import (
    Remedies,
    check_no_stray_words,
    numbers_among_words,
)
from fedloom.data.sources.number_format import Decimal, NumberFormat, Thousands, number_format
from fedloom.data.sources.table_rows import ReadingOptions, TableRows, read_rows
from fedloom.data.sources.table_target import (
    TableTarget,
    Target,
    Unlabelled,
    WantedTarget,
    check_columns,
    check_in_every_file,
    listed,
    pop_column,
    pop_target,
)
from fedloom.data.sources.targets import TaskOption
from fedloom.data.sources.unscaled import Unscaled

LOOKS_FOR = (
    "a .csv, .tsv or .parquet file, train.* and test.* in a folder, "
    "or a folder with one such file per client"
)
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
    task: TaskOption = "classification",
    unlabelled: Unlabelled = "refuse",
) -> tuple[_LabelledRows, float]:
    """The rows with their classes and clients, and the share to hold out."""
    if not (files := _table_files(path)):
        raise data_error(path, folder_listing(path), LOOKS_FOR, "give a table")
    options = ReadingOptions(
        number_format(decimal, thousands),
        header,
        listed(str(na)),
        parse_columns(columns),
        listed(drop),
        missing_columns == "fill",
    )
    rows = read_rows(files, options, path)
    wanted = WantedTarget(target, task, unlabelled)
    samples = _labelled(rows, wanted, client, listed(categorical), options.form, path)
    return samples, test_share


@wraps(_read_labelled, assigned=("__annotations__",))  # the options are the same
def read_unscaled(path: Path, name: str | None = None, **options: Any) -> Unscaled:
    """The columns of a table as they are, and its target as classes, of which one is enough."""
    samples, test_share = _read_labelled(path, name, **options)
    if samples.target.task != "classification":
        raise UserError(f"{path}: sites train classes only; leave out task={samples.target.task}")
    return _unscaled(samples, test_share, path)


@wraps(_read_labelled, assigned=("__annotations__",))
def read(path: Path, name: str | None = None, **options: Any) -> Dataset:
    """The data set of a table: its columns as features (columns.py), and its target."""
    samples, test_share = _read_labelled(path, name, **options)
    samples.target.check_two_classes(path)
    return _dataset(_unscaled(samples, test_share, path), name or default_name(path), path)


@dataclass(frozen=True)
class _LabelledRows:
    """The rows of a table with their targets and clients apart from the features."""

    rows: TableRows
    features: Frame
    target: TableTarget
    users: np.ndarray | None
    categories: list[str]
    warnings: list[str]


def _labelled(
    rows: TableRows,
    wanted: WantedTarget,
    client: str | None,
    categories: list[str],
    form: NumberFormat,
    path: Path,
) -> _LabelledRows:
    check_columns(categories, rows.frame, path)
    columns = wanted.columns(rows, path)
    rows = wanted.labelled(rows, columns)
    warnings = _check_words(rows, {*categories, client}, columns, form, path)
    frame = dict(rows.frame)
    target = pop_target(frame, columns, wanted.task, rows, path)
    users = _pop_clients(frame, client, rows, path) if client else None
    if users is None and _is_file_per_client(rows.files):
        users = rows.stems
    return _LabelledRows(rows, frame, target, users, categories, warnings)


def _unscaled(samples: _LabelledRows, test_share: float, path: Path) -> Unscaled:
    target = samples.target
    test, test_made = _test_rows(samples.rows, target, samples.users, test_share)
    about = {
        "format": "table",
        "source": str(path),
        "target": target.described,
        "test split": test_made,
        "remarks": json.dumps([*samples.rows.remarks, *samples.warnings]),
    }
    return Unscaled(
        "table",
        samples.features,
        target.y,
        target.names,
        target.numbered,
        samples.users,
        test,
        about,
        samples.categories,
        target.task,
    )


def _dataset(samples: Unscaled, name: str, path: Path) -> Dataset:
    frame, y, users, test = samples.x, samples.y, samples.users, samples.test
    assert isinstance(frame, dict)
    categories = samples.categorical
    features = encoding.encode(_rows(frame, ~test), _rows(frame, test), categories, path)
    about = {**samples.about, **encoding.described(frame, features, categories)}
    train, held_out = (
        raw_split(x, y[rows], path, None if users is None else users[rows], samples.task)
        for x, rows in zip(encoding.feature_matrices(features), (~test, test), strict=True)
    )
    return build_dataset(name, "table", train, held_out, about, samples.classes, task=samples.task)


def _test_rows(
    rows: TableRows, target: TableTarget, users: np.ndarray | None, share: float
) -> tuple[np.ndarray, str]:
    """The mask of the test split, and how it was made."""
    if _is_train_test_pair(rows.files):
        return rows.stems == "test", "the file test"
    where = rows.files[0] if len(rows.files) == 1 else rows.files[0].parent
    mask = holdout.held_out_mask(target.y, users, share, where)
    return mask, holdout.description(share, users is not None, task=target.task)


def _table_files(path: Path) -> list[Path]:
    candidates = sorted(path.iterdir()) if path.is_dir() else [path]
    return [p for p in candidates if p.suffix.lower() in READERS and p.is_file()]


def _is_train_test_pair(files: Sequence[Path]) -> bool:
    return sorted(file.stem for file in files) == ["test", "train"]


def _is_file_per_client(files: Sequence[Path]) -> bool:
    return len(files) > 1 and not _is_train_test_pair(files)


def _rows(frame: Frame, rows: np.ndarray) -> Frame:
    return {name: column[rows] for name, column in frame.items()}


def _check_words(
    rows: TableRows, exempt: set[str | None], targets: Sequence[str], form: NumberFormat, path: Path
) -> list[str]:
    """Refuse columns of numbers with words among them; warnings where it may be the other way."""
    warnings = []
    for name, column in rows.frame.items():
        if name in exempt:
            continue
        where = f"{path}, column '{name}'"
        check_no_stray_words(column, where, _remedies(name), form, rows.row)
        if name not in targets and (oddity := numbers_among_words(column, form)):
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


def _pop_clients(frame: Frame, client: str, rows: TableRows, path: Path) -> np.ndarray:
    users = pop_column(frame, client, path)
    check_in_every_file(client, rows, path, "client")
    if (missing := is_missing(users)).any():
        found = f"{int(missing.sum())} rows without a client in column '{client}'"
        first = rows.row(int(missing.argmax()))
        raise data_error(path, f"{found} (the first is {first})", "one in each row", "fill them in")
    check_ids_repeat(users, f"{path}, column '{client}'", frame)
    return as_text(users)
