"""A table of a paper as a preset: its rows and columns as settings, next to the printed numbers.

A file PAPER/TABLE.toml holds the settings that all runs of the table share, as any config file
does, and these parts:

extends         another file of the same folder; this file overrides it
[about]         title; shows: what the table demonstrates; settings: the paper's, in words;
                departures: where ours differ from the paper's; reduced: what the small scale
                leaves out
[small]         shared settings that the small scale overrides; rows, columns: the names that it
                keeps, by default all
[methods]       settings by the name of a row
[setups]        settings and small by the name of a column
[measure_sets]  sets of measures, each under a label
[[columns]]     name
                settings
                small: further settings at the small scale
                measure: an expression of metrics/measures.py, or a description of a printed
                    quantity that cannot be reproduced; a pair if the small scale has its own,
                    such as an easier target
                measure_set: instead of measure, the name of a set; one column per measure
                Columns with the same settings share their runs.
[[rows]]        name
                settings: by default those of [methods]
                small
                cells: further settings in single columns, by the name of the column; of columns
                    that share their runs, the first one
                note
                printed: for each column a number, [mean, spread], "1000+" for a target that was
                    not reached in 1000 rounds, or [] for none
                choose, among: one row for every choice of `choose` of the items `among`; the
                    chosen items are its name and replace {} in its settings. The printed numbers
                    are then the mean and spread over all choices.

Later layers override earlier ones: shared settings, [small], column, row, cell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from typing import Any, Literal, TypeVar

from fedloom.core.errors import UserError, unknown_name
from fedloom.metrics.measures import is_measure
from fedloom.settings.overrides import merged
from fedloom.settings.table_shorthand import expanded_columns, expanded_rows

Settings = dict[str, Any]
Scale = Literal["small", "paper"]

# The keys of a file that are not settings of its runs.
TABLE_KEYS = (
    "extends",
    "about",
    "small",
    "methods",
    "setups",
    "measure_sets",
    "columns",
    "rows",
)


@dataclass(frozen=True)
class About:
    """A table in words: its title, what it shows, the paper's settings and ours."""

    title: str
    shows: str
    settings: str
    reduced: str
    departures: str = ""


@dataclass(frozen=True)
class Printed:
    """A number of the paper, in its units, with the spread it prints.

    lower_bound: the paper prints only that the number is larger, as in 1000+.
    """

    mean: float
    spread: float | None = None
    lower_bound: bool = False

    def __str__(self) -> str:
        if self.spread is not None:
            return f"{self.mean} ± {self.spread}"
        return f"{self.mean}+" if self.lower_bound else str(self.mean)

    def gain(self, baseline: Printed) -> float | None:
        """The difference from another number; None if either is only a lower bound."""
        if self.lower_bound or baseline.lower_bound:
            return None
        return self.mean - baseline.mean


@dataclass(frozen=True)
class Column:
    """Settings that vary along the table, and the measure taken of their runs.

    measure_small: the measure at the small scale; empty if it is the same.
    runs_from: the first column with the same settings, whose runs this column uses.
    """

    name: str
    settings: Settings = field(default_factory=dict)
    small: Settings = field(default_factory=dict)
    measure: str = "accuracy"
    measure_small: str = ""
    runs_from: str = ""

    @property
    def is_measurable(self) -> bool:
        """Whether its numbers can be computed from its runs."""
        return is_measure(self.measure)


@dataclass(frozen=True)
class Row:
    """A method as settings, and the paper's numbers by the name of a column.

    cells: further settings by the name of a column.
    choice: such as "2 of 5", if the row is one of several whose mean the paper prints.
    """

    name: str
    settings: Settings
    small: Settings = field(default_factory=dict)
    cells: Mapping[str, Settings] = field(default_factory=dict)
    printed: Mapping[str, Printed] = field(default_factory=dict)
    note: str = ""
    choice: str = ""


Part = TypeVar("Part", Column, Row)


@dataclass(frozen=True)
class Table:
    """A table of a paper. kept_at_small: the names of the rows and columns of its small scale."""

    name: str
    about: About
    settings: Settings
    small: Settings
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    kept_at_small: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def at(self, scale: Scale, rows: Sequence[str] = (), columns: Sequence[str] = ()) -> Table:
        """The part to run: the rows and columns that are named, by default those of the scale.

        Columns that cannot be measured are left out; if none remains, this is a UserError, as is
        a name that the table does not have.
        """
        kept = self.kept_at_small if scale == "small" else {}
        chosen = self._named("column", self.columns, columns or kept.get("columns", ()))
        if scale == "small":
            chosen = tuple(replace(c, measure=c.measure_small or c.measure) for c in chosen)
        measurable = tuple(column for column in chosen if column.is_measurable)
        if not measurable:
            raise UserError(
                f"column '{chosen[0].name}' of '{self.name}' cannot be computed from a run's "
                f"accuracies; choose another column, see: fedloom presets {self.name}"
            )
        chosen_rows = self._named("row", self.rows, rows or kept.get("rows", ()))
        return replace(self, columns=measurable, rows=chosen_rows)

    def _named(self, kind: str, parts: Sequence[Part], names: Sequence[str]) -> tuple[Part, ...]:
        """The parts with these names, in the table's order; all of them if no name is given."""
        by_name = {part.name: part for part in parts}
        for name in names:
            if name not in by_name:
                raise unknown_name(kind, name, by_name, see=f"fedloom presets {self.name}")
        return tuple(part for part in parts if not names or part.name in names)

    def label_of_runs(self, column: Column) -> str:
        """What tells the runs of this column from those of others; empty if all share them."""
        return column.runs_from if len({c.runs_from for c in self.columns}) > 1 else ""

    def run_settings(self, row: Row, column: Column, scale: Scale) -> Settings:
        """The settings of the runs of one cell."""
        cell = row.cells.get(column.runs_from or column.name, {})
        if scale == "paper":
            layers = [self.settings, column.settings, row.settings, cell]
        else:
            of_column = [column.settings, column.small]
            layers = [self.settings, self.small, *of_column, row.settings, cell, row.small]
        return reduce(merged, layers)

    def describe(self) -> dict[str, Any]:
        """As JSON, without the shared settings."""
        parts = asdict(self)
        return {key: parts[key] for key in ("about", "small", "columns", "rows")}


def table(name: str, raw: Mapping[str, Any]) -> Table:
    """The table that a parsed TOML file describes."""
    small = dict(raw["small"])
    kept_at_small = {kind: small.pop(kind) for kind in ("rows", "columns") if kind in small}
    raw_columns = expanded_columns(
        raw["columns"], raw.get("setups", {}), raw.get("measure_sets", {})
    )
    columns = _with_shared_runs([Column(**column) for column in raw_columns])
    raw_rows = expanded_rows(raw["rows"], raw.get("methods", {}))
    return Table(
        name=name,
        about=About(**raw["about"]),
        settings={key: value for key, value in raw.items() if key not in TABLE_KEYS},
        small=small,
        columns=columns,
        rows=tuple(_row(row, columns) for row in raw_rows),
        kept_at_small=kept_at_small,
    )


def _with_shared_runs(columns: Sequence[Column]) -> tuple[Column, ...]:
    """The columns, each with the name of the first one that has the same settings."""
    result = []
    for column in columns:
        first = next(
            other
            for other in columns
            if (other.settings, other.small) == (column.settings, column.small)
        )
        result.append(replace(column, runs_from=first.name))
    return tuple(result)


def _row(raw: Mapping[str, Any], columns: Sequence[Column]) -> Row:
    numbers = raw.get("printed", [[]] * len(columns))
    printed = {
        column.name: _printed(number)
        for column, number in zip(columns, numbers, strict=True)
        if number != []
    }
    return Row(**{**raw, "printed": printed})


def _printed(number: float | str | Sequence[float]) -> Printed:
    if isinstance(number, str):
        return Printed(int(number.removesuffix("+")), lower_bound=True)
    if isinstance(number, float | int):
        return Printed(number)
    mean, spread = number
    return Printed(mean, spread)
