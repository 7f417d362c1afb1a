"""Tables: a CSV, TSV or Parquet file, a pair train.* and test.*, or one file per client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import numpy as np

from fedloom.core.errors import unknown_name
from fedloom.core.spec import Param
from fedloom.data.dataset import Dataset
from fedloom.data.sources import columns, holdout
from fedloom.data.sources.build import Name, build_dataset, default_name, raw_split
from fedloom.data.sources.client_column import check_ids_repeat
from fedloom.data.sources.errors import data_error, folder_listing, shortened
from fedloom.data.sources.frames import (
    READERS,
    Frame,
    as_text,
    concatenated,
    is_missing,
    read_frame,
)
from fedloom.data.sources.missing_values import check_no_stray_words

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

STRAY_WORDS = (
    "if they stand for missing values, set na={{words}}; "
    "if the column holds categories, set categorical='{0}'; or leave it out with drop='{0}'"
)
REGRESSION = (
    "it looks like a target for regression, and fedloom supports classification only: "
    "name another column with target=, or sort the values into classes first"
)


def detect(path: Path) -> bool:
    """Whether it is a table or a folder with tables."""
    return bool(_table_files(path))


def read(
    path: Path,
    name: Name = None,
    target: Target = None,
    client: Client = None,
    categorical: Categorical = "",
    drop: Drop = "",
    test_share: holdout.TestShare = 0.2,
    header: Header = None,
    na: Missing = "",
) -> Dataset:
    """The data set of a table: its columns as features (columns.py) and its target as classes."""
    files = _table_files(path)
    frame, origin = _read_rows(path, files, header, _listed(str(na)))
    for column in _listed(drop):
        _pop_column(frame, column, path)
    categories = _listed(categorical)
    _check_columns(categories, frame, path)
    _check_stray_words(frame, {*categories, client}, path)
    target = target or _default_target(frame, path)
    y, classes = _pop_classes(frame, target, path)
    users = _pop_clients(frame, client, path) if client else None
    if users is None and _is_file_per_client(files):
        users = origin
    test, test_made = _test_rows(files, origin, y, users, test_share)
    features = columns.encode(_rows(frame, ~test), _rows(frame, test), categories, path)
    about = {
        "format": "table",
        "source": str(path),
        "target": f"column '{target}'",
        "test split": test_made,
        "columns": json.dumps([feature.described() for feature in features]),
    }
    train, held_out = (
        raw_split(x, y[rows], path, None if users is None else users[rows])
        for x, rows in zip(columns.feature_matrices(features), (~test, test), strict=True)
    )
    return build_dataset(name or default_name(path), "table", train, held_out, about, classes)


def _test_rows(
    files: list[Path], origin: np.ndarray, y: np.ndarray, users: np.ndarray | None, share: float
) -> tuple[np.ndarray, str]:
    """The mask of the test split, and how it was made."""
    if _is_train_test_pair(files):
        return origin == "test", "the file test"
    where = files[0] if len(files) == 1 else files[0].parent
    mask = holdout.held_out_mask(y, users, share, where)
    return mask, holdout.description(share, users is not None)


def _table_files(path: Path) -> list[Path]:
    candidates = sorted(path.iterdir()) if path.is_dir() else [path]
    return [p for p in candidates if p.suffix.lower() in READERS and p.is_file()]


def _is_train_test_pair(files: list[Path]) -> bool:
    return sorted(file.stem for file in files) == ["test", "train"]


def _is_file_per_client(files: list[Path]) -> bool:
    return len(files) > 1 and not _is_train_test_pair(files)


def _read_rows(
    path: Path, files: list[Path], header: str | None, missing: list[str]
) -> tuple[Frame, np.ndarray]:
    """All rows, and for each the stem of its file."""
    if not files:
        raise data_error(path, folder_listing(path), LOOKS_FOR, "give a table")
    frames = [read_frame(file, header, missing) for file in files]
    lengths = [len(next(iter(frame.values()))) for frame in frames]
    return concatenated(frames, files), np.repeat([file.stem for file in files], lengths)


def _rows(frame: Frame, rows: np.ndarray) -> Frame:
    return {name: column[rows] for name, column in frame.items()}


def _listed(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


def _check_columns(names: list[str], frame: Frame, path: Path) -> None:
    for name in names:
        if name not in frame:
            raise unknown_name(f"column of {path}", name, frame)


def _check_stray_words(frame: Frame, exempt: set[str | None], path: Path) -> None:
    for name, column in frame.items():
        if name not in exempt:
            check_no_stray_words(column, f"{path}, column '{name}'", STRAY_WORDS.format(name))


def _pop_column(frame: Frame, name: str, path: Path) -> np.ndarray:
    _check_columns([name], frame, path)
    return frame.pop(name)


def _default_target(frame: Frame, path: Path) -> str:
    if not frame:
        raise data_error(path, "no column left", "features and a target", "drop fewer columns")
    by_lower_case = {name.lower(): name for name in frame}
    for candidate in TARGETS:
        if candidate in by_lower_case:
            return by_lower_case[candidate]
    return list(frame)[-1]


def _pop_clients(frame: Frame, client: str, path: Path) -> np.ndarray:
    users = _pop_column(frame, client, path)
    if (missing := is_missing(users)).any():
        found = f"{int(missing.sum())} rows without a client in column '{client}'"
        raise data_error(path, found, "one in each row", "fill them in")
    check_ids_repeat(users, f"{path}, column '{client}'", frame)
    return as_text(users)


def _pop_classes(frame: Frame, target: str, path: Path) -> tuple[np.ndarray, tuple[str, ...]]:
    """The target as class numbers, and the class names in the order of their values."""
    labels = _pop_column(frame, target, path)
    where = f"{path}, column '{target}'"
    if (missing := is_missing(labels)).any():
        found, remedy = f"{int(missing.sum())} rows without a label", "fill them in or remove them"
        raise data_error(where, found, "one in each row", remedy)
    levels, y = np.unique(labels, return_inverse=True)
    names = as_text(levels)
    if len(levels) < 2:
        found, remedy = f"the one class {shortened(names)}", "name another column with target="
        raise data_error(where, found, "at least two", remedy)
    has_fractions = labels.dtype.kind == "f" and (labels != np.floor(labels)).any()
    if has_fractions or len(levels) > max(MAX_CLASSES, len(y) // 10):
        found = f"{len(levels)} different values ({shortened(names, 3)})"
        raise data_error(where, found, "classes", REGRESSION)
    return y.astype(np.int64), tuple(names.tolist())
