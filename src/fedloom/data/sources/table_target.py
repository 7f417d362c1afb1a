"""What a table predicts: a column of classes, or columns of numbers or of labels of 0 and 1."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np

from fedloom.core.errors import UserError, unknown_name
from fedloom.core.spec import Param
from fedloom.data.sources.errors import data_error, shortened
from fedloom.data.sources.frames import Frame, as_text, is_missing
from fedloom.data.sources.table_rows import TableRows
from fedloom.data.sources.targets import (
    FOR_COLUMNS,
    FOR_NUMBERS,
    LARGEST,
    bad_number,
    looks_measured,
)

TARGETS = ("label", "target", "y")
Target = Annotated[
    str | None,
    Param(
        "column to predict; by default label, target or y, else the last column; several, "
        "comma-separated, with task=multilabel or task=regression"
    ),
]


Unlabelled = Annotated[
    Literal["refuse", "drop"],
    Param("what to do with rows that have no value to predict: refuse them, or leave them out"),
]


@dataclass(frozen=True)
class WantedTarget:
    """What the user said about the target. name: of a column, or of several; None: the usual."""

    name: str | None
    task: str
    unlabelled: str = "refuse"

    def columns(self, rows: TableRows, path: Path) -> tuple[str, ...]:
        """The columns to predict."""
        if self.task == "next-token":
            raise UserError(f"{path}: a table has no tokens; use another task than next-token")
        if self.name is None:
            return (_default_target(rows, path),)
        if self.name in rows.frame:  # a column may have a comma in its name
            return (self.name,)
        names = tuple(listed(self.name))
        if twice := [name for name in names if names.count(name) > 1]:
            raise UserError(f"target={self.name} names the column '{twice[0]}' twice; name it once")
        check_columns(names, rows.frame, path)
        if len(names) > 1 and self.task == "classification":
            raise data_error(path, f"target={self.name}", "one column of classes", FOR_COLUMNS)
        return names

    def labelled(self, rows: TableRows, columns: Sequence[str]) -> TableRows:
        """The rows that have a value to predict, if the others are to be left out."""
        if self.unlabelled == "refuse":
            return rows
        missing = np.any([is_missing(rows.frame[name]) for name in columns], axis=0)
        if not missing.any():
            return rows
        note = f"note: {int(missing.sum())} rows without a value to predict were left out"
        return replace(rows.take(~missing), remarks=(*rows.remarks, note))


@dataclass(frozen=True)
class TableTarget:
    """The targets of all rows.

    names: of the classes in the order of their values, or of the columns. numbered: whether the
    classes are numbers.
    """

    task: str
    columns: tuple[str, ...]
    y: np.ndarray
    names: tuple[str, ...]
    numbered: bool

    @property
    def described(self) -> str:
        """In words, for Dataset.about."""
        noun = "column" if len(self.columns) == 1 else "columns"
        return f"{noun} {', '.join(repr(name) for name in self.columns)}"

    def check_two_classes(self, path: Path) -> None:
        """Refuse a target of a single class."""
        if self.task == "classification" and len(self.names) < 2:
            where = f"{path}, {self.described}"
            found = f"the one class {shortened(self.names)}"
            raise data_error(where, found, "at least two", "name another column with target=")


def pop_target(
    frame: Frame, columns: Sequence[str], task: str, rows: TableRows, path: Path
) -> TableTarget:
    """Take the columns to predict out of the features."""
    popped = [_complete_column(frame, name, rows, path) for name in columns]
    if task == "classification":
        y, names = _classes(popped[0], f"{path}, column '{columns[0]}'")
        return TableTarget(task, tuple(columns), y, names, popped[0].dtype.kind == "f")
    for name, column in zip(columns, popped, strict=True):
        if column.dtype.kind != "f":
            words = shortened(map(repr, np.unique(column).tolist()), 3)
            remedy = "write labels as 0 and 1" if task == "multilabel" else "name another column"
            raise data_error(f"{path}, column '{name}'", f"text ({words})", "numbers", remedy)
        is_bad = ~(np.abs(column) <= LARGEST)
        if is_bad.any():
            row = int(is_bad.argmax())
            raise bad_number(column[row], f"in {rows.row(row)}", f"{path}, column '{name}'")
    y = np.stack(popped, axis=1)
    return TableTarget(task, tuple(columns), y, tuple(columns), False)


def _complete_column(frame: Frame, name: str, rows: TableRows, path: Path) -> np.ndarray:
    """A column without gaps."""
    column = pop_column(frame, name, path)
    check_in_every_file(name, rows, path, "target")
    if (missing := is_missing(column)).any():
        found = f"{int(missing.sum())} rows without a label"
        first = rows.row(int(missing.argmax()))
        remedy = "fill them in, or leave them out with unlabelled=drop"
        where = f"{path}, column '{name}'"
        raise data_error(where, f"{found} (the first is {first})", "one in each row", remedy)
    return column


def _classes(labels: np.ndarray, where: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """The target as class numbers, and the class names in the order of their values."""
    levels, y = np.unique(labels, return_inverse=True)
    names = as_text(levels)
    if looks_measured(labels):
        found = f"{len(levels)} different values ({shortened(names, 3)})"
        remedy = f"{FOR_NUMBERS}, or name another column with target="
        raise data_error(where, f"{found} in {len(y)} rows", "classes", remedy)
    return y.astype(np.int64), tuple(names.tolist())


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


def check_in_every_file(name: str, rows: TableRows, path: Path, option: str) -> None:
    """Refuse a column that some of the files lack. option: the one that names it."""
    if absent := rows.lacking.get(name):
        found = f"no column '{name}' in {shortened(absent)}"
        remedy = f"add it, or name another column with {option}="
        raise data_error(path, found, "it in every file", remedy)


def pop_column(frame: Frame, name: str, path: Path) -> np.ndarray:
    """Take a column out of a frame."""
    check_columns([name], frame, path)
    return frame.pop(name)


def check_columns(names: Collection[str], frame: Frame, path: Path) -> None:
    """Refuse names that are no columns."""
    for name in names:
        if name not in frame:
            raise unknown_name("column", name, frame, place=path)


def listed(names: str) -> list[str]:
    """Names separated by commas."""
    return [name.strip() for name in names.split(",") if name.strip()]
