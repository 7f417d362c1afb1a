"""A table of a paper as a preset: rows and columns as settings, and beside them the numbers that the paper prints.

A file PAPER/TABLE.toml holds the settings that all of its runs share, as any config does, and these:

like         another file of the folder, whose settings, [small] and [methods] it takes over
[about]      title; shows: what the table is there for; settings: the paper's, in words; departs: where ours are not quite
             the paper's; cut: what the small scale leaves out
[small]      settings of the small scale over all others that are shared; rows, columns: the names it keeps, all if left out
[methods]    settings by the name of a row
[[columns]]  name; settings; small: more settings at the small scale; measure: a word of study/measure.py, or what else is
             printed there, which a comparison leaves out. Columns of the same settings are read off the same runs
[[rows]]     name; settings, else those of [methods]; small; printed: a number or [mean, spread] for each column, [] for none; note

Later layers win: shared, [small], column, row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from typing import Any, Literal

from fedloom.core.errors import UserError, unknown
from fedloom.study.measure import is_measure
from fedloom.study.raw import merged

Settings = dict[str, Any]
Scale = Literal["small", "paper"]
PARTS = ("like", "about", "small", "methods", "columns", "rows")  # the names in a file that are not settings


@dataclass(frozen=True)
class About:
    """What a table is for, in words."""

    title: str
    shows: str
    settings: str
    cut: str
    departs: str = ""


@dataclass(frozen=True)
class Printed:
    """A number of the paper, in its units, with the spread it prints."""

    mean: float
    spread: float | None = None

    def __str__(self) -> str:
        return f"{self.mean}" if self.spread is None else f"{self.mean} ± {self.spread}"


@dataclass(frozen=True)
class Column:
    """Settings that vary along the table, and what is read off their runs; runs: the first column of the same settings."""

    name: str
    settings: Settings = field(default_factory=dict)
    small: Settings = field(default_factory=dict)
    measure: str = "accuracy"
    runs: str = ""

    @property
    def measurable(self) -> bool:
        """Whether a comparison can read it off its runs."""
        return is_measure(self.measure)


@dataclass(frozen=True)
class Row:
    """A method as settings, and the paper's numbers by the name of a column."""

    name: str
    settings: Settings
    small: Settings = field(default_factory=dict)
    printed: Mapping[str, Printed] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class Table:
    """A study; keeps: the rows and columns of its small scale."""

    name: str
    about: About
    settings: Settings
    small: Settings
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    keeps: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def at(self, scale: Scale, rows: Sequence[str] = (), columns: Sequence[str] = ()) -> Table:
        """The part that is run: what is named, else what the scale keeps, and of the columns those that can be measured."""
        keeps = self.keeps if scale == "small" else {}
        chosen = self._named("column", self.columns, columns or keeps.get("columns", ()))
        measured = tuple(c for c in chosen if c.measurable)
        if not measured:
            raise UserError(
                f"column '{chosen[0].name}' of '{self.name}' is not read off accuracies; see: fedloom presets {self.name}"
            )
        return replace(self, columns=measured, rows=self._named("row", self.rows, rows or keeps.get("rows", ())))

    def _named(self, kind: str, parts: Sequence[Any], names: Sequence[str]) -> tuple[Any, ...]:
        by_name = {part.name: part for part in parts}
        for name in names:
            if name not in by_name:
                raise unknown(kind, name, by_name, see=f"fedloom presets {self.name}")
        return tuple(part for part in parts if not names or part.name in names)

    def run(self, row: Row, column: Column, scale: Scale) -> Settings:
        """The settings of one run."""
        small = scale == "small"
        layers = [self.settings, self.small if small else {}]
        for part in (column, row):
            layers += [part.settings, part.small if small else {}]
        return reduce(merged, layers)

    def describe(self) -> dict[str, Any]:
        """As JSON, the settings apart."""
        parts = asdict(self)
        return {"about": parts["about"], "small": self.small, "columns": parts["columns"], "rows": parts["rows"]}


def table(name: str, raw: Mapping[str, Any]) -> Table:
    """A table from its file."""
    small = dict(raw["small"])
    keeps = {kind: small.pop(kind) for kind in ("rows", "columns") if kind in small}
    columns = _columns(raw["columns"])
    return Table(
        name=name,
        about=About(**raw["about"]),
        settings={k: v for k, v in raw.items() if k not in PARTS},
        small=small,
        columns=columns,
        rows=tuple(_row(row, columns, raw.get("methods", {})) for row in raw["rows"]),
        keeps=keeps,
    )


def _columns(raw: Sequence[Mapping[str, Any]]) -> tuple[Column, ...]:
    plain = [Column(**c) for c in raw]
    first = [next(p.name for p in plain if (p.settings, p.small) == (c.settings, c.small)) for c in plain]
    return tuple(replace(c, runs=name) for c, name in zip(plain, first, strict=True))


def _row(raw: Mapping[str, Any], columns: Sequence[Column], methods: Mapping[str, Settings]) -> Row:
    numbers = raw.get("printed", [[]] * len(columns))
    printed = {c.name: _printed(n) for c, n in zip(columns, numbers, strict=True) if n != []}
    settings = raw["settings"] if "settings" in raw else methods[raw["name"]]
    return Row(**{**raw, "settings": settings, "printed": printed})


def _printed(number: float | list[float]) -> Printed:
    return Printed(*number) if isinstance(number, list) else Printed(number)
