"""All rows of the files of a table under common column names, and what was odd about the files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedloom.core.errors import unknown_name
from fedloom.data.sources.column_names import with_all_columns, with_common_names
from fedloom.data.sources.errors import shortened
from fedloom.data.sources.frames import FileTable, Frame, concatenated, read_table
from fedloom.data.sources.headers import doubt_about_header
from fedloom.data.sources.number_format import NumberFormat, ambiguous_thousands


@dataclass(frozen=True)
class TableRows:
    """The columns of all files; for each row its file and where it stands there.

    lacking: the files that have no such column. remarks: lines that start with 'note: ' or
    'warning: '.
    """

    frame: Frame
    files: tuple[Path, ...]
    file_of_row: np.ndarray  # positions in `files`
    row_in_file: np.ndarray
    lacking: Mapping[str, list[str]]
    remarks: tuple[str, ...]

    @property
    def stems(self) -> np.ndarray:
        """The name of each row's file, without its suffix."""
        stems: np.ndarray = np.array([file.stem for file in self.files])[self.file_of_row]
        return stems

    def take(self, rows: np.ndarray) -> TableRows:
        """The rows selected by a mask."""
        frame = {name: column[rows] for name, column in self.frame.items()}
        places = {"file_of_row": self.file_of_row[rows], "row_in_file": self.row_in_file[rows]}
        return replace(self, frame=frame, **places)

    def row(self, place: int) -> str:
        """Where a row stands, for a message; its file is named if there are several."""
        number = f"row {self.row_in_file[place]}"
        if len(self.files) == 1:
            return number
        return f"{self.files[self.file_of_row[place]].name} {number}"


@dataclass(frozen=True)
class ReadingOptions:
    """How files are read and brought together: the options of table.read."""

    form: NumberFormat
    header: str | None
    missing: Sequence[str]
    columns: Mapping[str, str]
    drop: Sequence[str]
    fill: bool


def read_rows(files: Sequence[Path], options: ReadingOptions, where: Path) -> TableRows:
    """The rows of all files."""
    tables = [read_table(file, options.header, options.missing, options.form) for file in files]
    remarks = [] if options.header else [*_doubts_about_headers(tables)]
    _check_dropped_names(options, tables, where)
    tables, notes = with_common_names(_without(tables, options.drop), options.columns, where)
    tables, lacking = with_all_columns(_without(tables, options.drop), options.fill)
    sizes = [len(table.rows) for table in tables]
    return TableRows(
        concatenated(tables, options.form),
        tuple(files),
        np.repeat(np.arange(len(files)), sizes),
        np.concatenate([table.rows for table in tables]),
        {name: [t.file.name for t in where_not] for name, where_not in lacking.items()},
        (
            *remarks,
            *_doubts_about_thousands(tables, options.form),
            *(f"note: {note}" for note in notes),
            *_filled_notes(lacking),
        ),
    )


def _doubts_about_headers(tables: Sequence[FileTable]) -> list[str]:
    text_files = [t for t in tables if t.file.suffix.lower() != ".parquet"]
    doubts = [(t.file.name, doubt_about_header(t.frame)) for t in text_files]
    return [f"warning: {file}: {doubt}" for file, doubt in doubts if doubt]


def _doubts_about_thousands(tables: Sequence[FileTable], form: NumberFormat) -> list[str]:
    mark, other = form.decimal, "," if form.decimal == "." else "."
    doubts = []
    for name in tables[0].frame:
        columns = [t.frame[name] for t in tables if t.frame[name].dtype.kind != "f"]
        cells = (cell for column in columns for cell in column.tolist() if cell)
        if example := ambiguous_thousands(cells, form):
            meant = example.replace(mark, "")
            doubts.append(
                f"warning: column '{name}': the '{mark}' in {example} is taken as the decimal "
                f"mark; if it means {meant}, set decimal='{other}' and thousands='{mark}'"
            )
    return doubts


def _filled_notes(lacking: Mapping[str, list[FileTable]]) -> list[str]:
    """What was filled in, and where."""
    return [
        f"note: column '{name}' is absent from {shortened(t.file.name for t in tables)}: "
        f"its {sum(len(t.rows) for t in tables)} values there are treated as missing"
        for name, tables in lacking.items()
    ]


def _check_dropped_names(options: ReadingOptions, tables: Sequence[FileTable], where: Path) -> None:
    existing = {name for table in tables for name in table.frame} | {*options.columns.values()}
    for name in options.drop:
        if name not in existing:
            raise unknown_name("column", name, existing, place=where)


def _without(tables: Sequence[FileTable], names: Sequence[str]) -> list[FileTable]:
    return [
        replace(t, frame={name: c for name, c in t.frame.items() if name not in names})
        for t in tables
    ]
