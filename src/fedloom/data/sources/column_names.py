"""One name per column in all files of a table: other names, other spellings, absent columns.

Two names are spelt alike if they differ in case and blanks only: "Blood pressure", "bloodpressure".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np

from fedloom.core.errors import UserError, shown, unknown_name
from fedloom.core.spec import Param
from fedloom.data.sources.errors import data_error, shortened
from fedloom.data.sources.frames import FileTable

Columns = Annotated[
    str | dict[str, str],
    Param(
        "other names of columns, OTHER:NAME comma-separated, such as Alter:age,Years:age; "
        "case and blanks of OTHER may differ from the file"
    ),
]
MissingColumns = Annotated[
    Literal["refuse", "fill"],
    Param("what to do if a file lacks a column of the others: refuse, or fill in missing values"),
]

EXAMPLE = "columns=Alter:age,Years:age"


def parse_columns(columns: str | Mapping[str, str]) -> dict[str, str]:
    """The canonical name of each other name.

    >>> parse_columns("Alter:age, Years:age")
    {'Alter': 'age', 'Years': 'age'}
    """
    if isinstance(columns, str):
        pieces = [piece.partition(":") for piece in columns.split(",") if piece.strip()]
        pairs = [(other.strip(), name.strip()) for other, _, name in pieces]
    else:
        pairs = list(columns.items())
    mapping: dict[str, str] = {}
    for other, name in pairs:
        if not all(isinstance(text, str) and text for text in (other, name)):
            raise UserError(f"columns={shown(columns)} must be OTHER:NAME pairs, such as {EXAMPLE}")
        if mapping.setdefault(other, name) != name:
            raise UserError(
                f"columns= gives '{other}' the two names '{mapping[other]}' and '{name}'; "
                "choose one of them"
            )
    return mapping


def with_common_names(
    tables: Sequence[FileTable], columns: Mapping[str, str], where: object
) -> tuple[list[FileTable], list[str]]:
    """The tables with canonical names, and a note for each spelling that was adapted.

    A column takes the name that `columns` gives it. One that is spelt like a canonical name, or
    like a column of an earlier file, takes that name.
    """
    _check_names_occur(columns, tables, where)
    known = list(dict.fromkeys(columns.values()))
    renamed: list[FileTable] = []
    notes: dict[str, None] = {}
    for table in tables:
        new_names = _mapped_names(table, columns)
        taken = set(new_names.values())
        for column in [c for c in table.frame if c not in new_names]:
            new_names[column] = _known_spelling(column, known, taken | {*table.frame}, table)
            if new_names[column] != column:
                notes[
                    f"column '{column}' of {table.file.name} is read as '{new_names[column]}'"
                ] = None
        renamed.append(_renamed(table, new_names))
        known += [name for name in renamed[-1].frame if name not in known]
    return renamed, list(notes)


def with_all_columns(
    tables: Sequence[FileTable], fill: bool
) -> tuple[list[FileTable], dict[str, list[FileTable]]]:
    """The tables with the same columns, and for each column that was filled in, where.

    Without `fill`, every file must have the columns of the first.
    """
    if not fill:
        for table in tables:
            _check_same_columns(table, tables[0])
        return list(tables), {}
    union = list(dict.fromkeys(name for table in tables for name in table.frame))
    lacking = {name: [t for t in tables if name not in t.frame] for name in union}
    filled = [replace(table, frame=_filled(table, union)) for table in tables]
    return filled, {name: where for name, where in lacking.items() if where}


def _filled(table: FileTable, names: Iterable[str]) -> dict[str, np.ndarray]:
    missing = np.full(len(table.rows), "", dtype=str)
    return {name: table.frame.get(name, missing) for name in names}


def _check_same_columns(table: FileTable, first: FileTable) -> None:
    more = [name for name in table.frame if name not in first.frame]
    fewer = [name for name in first.frame if name not in table.frame]
    if more or fewer:
        expected = f"the columns of {first.file.name}"
        raise data_error(table.file, shortened(table.frame), expected, _remedies(more, fewer))


def _remedies(more: Sequence[str], fewer: Sequence[str]) -> str:
    """What to do about columns that a file has, and lacks, compared with the first."""
    other_names = "columns=OTHER:NAME if a column has two names"
    if len(more) == len(fewer) == 1:
        other_names = f"columns='{more[0]}:{fewer[0]}' if these are the same"
    return (
        f"add or remove: {shortened(sorted([*more, *fewer]))}; or set {other_names}, "
        "or missing_columns=fill to treat absent columns as missing values"
    )


def _check_names_occur(
    columns: Mapping[str, str], tables: Sequence[FileTable], where: object
) -> None:
    existing = list(dict.fromkeys(name for table in tables for name in table.frame))
    spellings = {_spelling(name) for name in existing}
    for other in columns:
        if _spelling(other) not in spellings:
            raise unknown_name("column", other, existing, place=f"{where} (named by columns=)")


def _mapped_names(table: FileTable, columns: Mapping[str, str]) -> dict[str, str]:
    """The new names of the table's columns that `columns` names."""
    new_names: dict[str, str] = {}
    for other, name in columns.items():
        column = other if other in table.frame else _spelt_alike(other, table.frame, table)
        if column is None or (column != other and column in columns):
            continue
        if new_names.setdefault(column, name) != name:
            found = f"column '{column}', for which columns= has the names"
            found = f"{found} '{new_names[column]}' and '{name}'"
            raise data_error(table.file, found, "one of them", "write columns= with exact names")
    return new_names


def _known_spelling(column: str, known: Sequence[str], taken: set[str], table: FileTable) -> str:
    """The known name that is spelt like the column, or the column itself."""
    if column in known:
        return column
    free = [name for name in known if name not in taken]
    return _spelt_alike(column, free, table) or column


def _spelt_alike(name: str, candidates: Iterable[str], table: FileTable) -> str | None:
    alike = [c for c in candidates if _spelling(c) == _spelling(name)]
    if len(alike) > 1:
        found = f"two columns that are spelt like '{name}': {shortened(map(repr, alike))}"
        remedy = f"name them exactly with columns={alike[0]}:NAME,{alike[1]}:NAME"
        raise data_error(table.file, found, "one", remedy)
    return alike[0] if alike else None


def _renamed(table: FileTable, new_names: Mapping[str, str]) -> FileTable:
    frame: dict[str, np.ndarray] = {}
    origin: dict[str, str] = {}
    for column, values in table.frame.items():
        name = new_names[column]
        if name in frame:
            found = f"the columns '{origin[name]}' and '{column}', which are both '{name}'"
            remedy = "leave one of them out with drop=, or give it another name with columns="
            raise data_error(table.file, found, "one of them", remedy)
        frame[name], origin[name] = values, column
    return replace(table, frame=frame)


def _spelling(name: str) -> str:
    return "".join(name.split()).casefold()
