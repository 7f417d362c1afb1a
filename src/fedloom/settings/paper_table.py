"""A table of a paper as a preset: rows and columns as settings, and beside them the numbers that the paper prints.

A file PAPER/TABLE.toml holds the settings that all of its runs share, as any config does, and these:

like         another file of the folder, over which this one lies
[about]      title; shows: what the table is there for; settings: the paper's, in words; departs: where ours are not quite
             the paper's; cut: what the small scale leaves out
[small]      settings of the small scale over all others that are shared; rows, columns: the names it keeps, all if left out
[methods]    settings by the name of a row
[setups]     settings and small by the name of a column
[reads]      sets of measures, each by its name
[[columns]]  name; settings; small: more settings at the small scale; measure: a word of metrics/measures.py, or what else is
             printed there, which a comparison leaves out; a pair where the small scale has a word of its own, as a nearer
             target; reads, instead of measure: the name of a set, for a column of each of its measures. Columns of the same
             settings are read off the same runs
[[rows]]     name; settings, else those of [methods]; small; note; printed: for each column a number, [mean, spread], "1000+"
             for what was not reached by then, or [] for none; take, of: a row for every choice of so many of these words,
             which are its name and stand for {} in its settings; what is printed is then the mean and spread over all choices

Later layers win: shared, [small], column, row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from typing import Any, Literal

from fedloom.core.errors import UserError, unknown_name
from fedloom.metrics.measures import is_measure
from fedloom.settings.overrides import merged
from fedloom.settings.presets import expand

Settings = dict[str, Any]
Scale = Literal["small", "paper"]
PARTS = (
    "like",
    "about",
    "small",
    "methods",
    "setups",
    "reads",
    "columns",
    "rows",
)  # the names in a file that are not settings


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
    """A number of the paper, in its units, with the spread it prints; beyond: more than that, printed as 1000+."""

    mean: float
    spread: float | None = None
    beyond: bool = False

    def __str__(self) -> str:
        more = "+" if self.beyond else ""
        return f"{self.mean}{more}" if self.spread is None else f"{self.mean} ± {self.spread}"

    def gain(self, first: Printed) -> float | None:
        """The difference to another number; None where either is only a bound."""
        return None if self.beyond or first.beyond else self.mean - first.mean


@dataclass(frozen=True)
class Column:
    """Settings that vary along the table, and what is read off their runs; runs: the first column of the same settings.

    measure_small: what the small scale reads instead; empty if the same.
    """

    name: str
    settings: Settings = field(default_factory=dict)
    small: Settings = field(default_factory=dict)
    measure: str = "accuracy"
    measure_small: str = ""
    runs: str = ""

    @property
    def measurable(self) -> bool:
        """Whether a comparison can read it off its runs."""
        return is_measure(self.measure)


@dataclass(frozen=True)
class Row:
    """A method as settings, and the paper's numbers by the name of a column. choice: of how many, if those are of all choices."""

    name: str
    settings: Settings
    small: Settings = field(default_factory=dict)
    printed: Mapping[str, Printed] = field(default_factory=dict)
    note: str = ""
    choice: str = ""


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
        if scale == "small":
            chosen = tuple(replace(c, measure=c.measure_small or c.measure) for c in chosen)
        measured = tuple(c for c in chosen if c.measurable)
        if not measured:
            raise UserError(
                f"column '{chosen[0].name}' of '{self.name}' is not read off accuracies; see: fedloom presets {self.name}"
            )
        return replace(
            self,
            columns=measured,
            rows=self._named("row", self.rows, rows or keeps.get("rows", ())),
        )

    def _named(self, kind: str, parts: Sequence[Any], names: Sequence[str]) -> tuple[Any, ...]:
        by_name = {part.name: part for part in parts}
        for name in names:
            if name not in by_name:
                raise unknown_name(kind, name, by_name, see=f"fedloom presets {self.name}")
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
        return {
            "about": parts["about"],
            "small": self.small,
            "columns": parts["columns"],
            "rows": parts["rows"],
        }


def table(name: str, raw: Mapping[str, Any]) -> Table:
    """A table from its file."""
    small = dict(raw["small"])
    keeps = {kind: small.pop(kind) for kind in ("rows", "columns") if kind in small}
    columns = _columns(expand.columns(raw["columns"], raw.get("setups", {}), raw.get("reads", {})))
    return Table(
        name=name,
        about=About(**raw["about"]),
        settings={k: v for k, v in raw.items() if k not in PARTS},
        small=small,
        columns=columns,
        rows=tuple(_row(row, columns) for row in expand.rows(raw["rows"], raw.get("methods", {}))),
        keeps=keeps,
    )


def _columns(raw: Sequence[Mapping[str, Any]]) -> tuple[Column, ...]:
    plain = [Column(**c) for c in raw]
    first = [
        next(p.name for p in plain if (p.settings, p.small) == (c.settings, c.small)) for c in plain
    ]
    return tuple(replace(c, runs=name) for c, name in zip(plain, first, strict=True))


def _row(raw: Mapping[str, Any], columns: Sequence[Column]) -> Row:
    numbers = raw.get("printed", [[]] * len(columns))
    printed = {c.name: _printed(n) for c, n in zip(columns, numbers, strict=True) if n != []}
    return Row(**{**raw, "printed": printed})


def _printed(number: float | str | tuple[float, float]) -> Printed:
    if isinstance(number, str):
        return Printed(int(number.removesuffix("+")), beyond=True)
    if isinstance(number, float | int):
        return Printed(number)
    mean, spread = number
    return Printed(mean, spread)
