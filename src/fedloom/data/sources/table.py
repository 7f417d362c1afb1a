"""Tables: a CSV, TSV or Parquet file, a pair train.* and test.*, or a folder with one file a client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import numpy as np

from fedloom.core.errors import unknown_name
from fedloom.core.spec import Param
from fedloom.data.dataset import Dataset
from fedloom.data.sources import columns, holdout
from fedloom.data.sources.build import Name, dataset, named, part
from fedloom.data.sources.errors import bad, listing, some
from fedloom.data.sources.frames import READERS, Frame, gaps, join, load, words

LOOKS_FOR = "a .csv, .tsv or .parquet file, train.* and test.* in a folder, or a folder with one such file a client"
TARGETS = ("label", "target", "y")
MANY = (
    100  # a target of more different numbers than this, and than a tenth of the rows, is no class
)

Target = Annotated[
    str | None, Param("column to be told; none is label, target or y, else the last column")
]
Client = Annotated[
    str | None,
    Param("column that names the client of a row; none is its file, where each client has one"),
]
Categorical = Annotated[str, Param("columns of numbers to be taken as words, with commas between")]
Drop = Annotated[str, Param("columns to be left out, with commas between")]


def detect(path: Path) -> bool:
    """Whether it is a table or a folder with tables."""
    return bool(_files(path))


def read(
    path: Path,
    name: Name = None,
    target: Target = None,
    client: Client = None,
    categorical: Categorical = "",
    drop: Drop = "",
    test_share: holdout.TestShare = 0.2,
) -> Dataset:
    """The data set of a table, its columns as numbers (columns.py) and its target as classes."""
    files = _files(path)
    frame, origin = _rows(path, files)
    for column in _listed(drop):
        _popped(frame, column, path)
    y, classes = _classes(frame, target or _target(frame, path), path)
    users = _users(frame, client, path) if client else origin if _one_a_client(files) else None
    test = origin == "test" if _paired(files) else holdout.held_out(y, users, test_share, path)
    made = "the file test" if _paired(files) else holdout.said(test_share, users is not None)
    found = columns.features(
        _taken(frame, ~test), _taken(frame, test), _known(_listed(categorical), frame, path), path
    )
    about = {
        "format": "table",
        "source": str(path),
        "test split": made,
        "columns": json.dumps([f.described() for f in found]),
    }
    train, held = (
        part(x, y[rows], path, None if users is None else users[rows])
        for x, rows in zip(columns.matrix(found), (~test, test), strict=True)
    )
    return dataset(name or named(path), "table", train, held, about, classes)


def _files(path: Path) -> list[Path]:
    inside = sorted(path.iterdir()) if path.is_dir() else [path]
    return [p for p in inside if p.suffix.lower() in READERS and p.is_file()]


def _paired(files: list[Path]) -> bool:
    return sorted(file.stem for file in files) == ["test", "train"]


def _one_a_client(files: list[Path]) -> bool:
    return len(files) > 1 and not _paired(files)


def _rows(path: Path, files: list[Path]) -> tuple[Frame, np.ndarray]:
    """All rows, and the stem of the file each is from."""
    if not files:
        raise bad(path, listing(path), LOOKS_FOR, "give a table")
    frames = [load(file) for file in files]
    return join(frames, files), np.repeat(
        [f.stem for f in files], [len(next(iter(frame.values()))) for frame in frames]
    )


def _taken(frame: Frame, rows: np.ndarray) -> Frame:
    return {name: column[rows] for name, column in frame.items()}


def _listed(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


def _known(names: list[str], frame: Frame, path: Path) -> list[str]:
    for name in names:
        if name not in frame:
            raise unknown_name(f"column of {path}", name, frame)
    return names


def _popped(frame: Frame, name: str, path: Path) -> np.ndarray:
    return frame.pop(*_known([name], frame, path))


def _target(frame: Frame, path: Path) -> str:
    if not frame:
        raise bad(path, "no column left", "features and a target", "drop fewer columns")
    lower = {name.lower(): name for name in frame}
    return next((lower[t] for t in TARGETS if t in lower), list(frame)[-1])


def _users(frame: Frame, client: str, path: Path) -> np.ndarray:
    users = _popped(frame, client, path)
    if (empty := gaps(users)).any():
        raise bad(
            path,
            f"{int(empty.sum())} rows without a client in column '{client}'",
            "one in each row",
            "fill them in",
        )
    return words(users)


def _classes(frame: Frame, target: str, path: Path) -> tuple[np.ndarray, tuple[str, ...]]:
    """The target as class numbers, and the classes in the order of their values."""
    labels = _popped(frame, target, path)
    where = f"{path}, column '{target}'"
    if (empty := gaps(labels)).any():
        raise bad(
            where,
            f"{int(empty.sum())} rows without a label",
            "one in each row",
            "fill them in or remove the rows",
        )
    levels, y = np.unique(labels, return_inverse=True)
    if len(levels) < 2:
        raise bad(
            where,
            f"the one class {some(words(levels))}",
            "at least two",
            "name another column with target=",
        )
    if len(levels) > max(MANY, len(y) // 10) or (
        labels.dtype.kind == "f" and (labels != np.floor(labels)).any()
    ):
        remedy = "name another column with target=, or sort the values into classes first"
        raise bad(
            where, f"{len(levels)} different values ({some(words(levels), 3)})", "classes", remedy
        )
    return y.astype(np.int64), tuple(words(levels).tolist())
