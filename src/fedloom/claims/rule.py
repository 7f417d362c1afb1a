"""What all forms of a rule have in common: a metric, cells, and differences by seed."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from fedloom.claims import statistics as st
from fedloom.claims.comparison import Cell, Comparison, Read, Region, Series, Unit
from fedloom.core.errors import UserError

COUNTED = {"macs", "stored_parameters", "bytes", "bytes_up_and_down", "peak_bytes"}
TIMED = {"step_seconds"}  # in turns of a benchmark
TO_TARGET = {"rounds_to_target", "seconds_to_target"}


class Rule(BaseModel, ABC):
    """The base of all forms of a rule."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    is_ratio: ClassVar[bool] = False

    metric: str
    column: str | None = None
    scale: Literal["linear", "log"] = "linear"

    @property
    def is_counted(self) -> bool:
        """Whether the figures are counted exactly, so that one is enough."""
        return self.metric in COUNTED

    @property
    def is_log(self) -> bool:
        """Whether logarithms are compared."""
        return self.is_ratio or self.scale == "log" or self.metric in TO_TARGET

    @abstractmethod
    def names(self) -> list[str]:
        """The cells as the claims file writes them."""

    def cells(self, default: str | None) -> list[Cell]:
        """All cells that the rule compares. default: the column of names without one."""
        return [self.cell(name, default) for name in self.names()]

    def cell(self, name: str, default: str | None) -> Cell:
        """The cell that a claims file writes like this."""
        row, separator, column = name.partition(" @ ")
        if separator:
            return row, column
        if (column_of_rule := self.column or default) is None:
            raise UserError(f"'{name}' names no column; write it as '{name} @ COLUMN'")
        return row, column_of_rule

    @abstractmethod
    def comparisons(self, read: Read, default: str | None) -> list[Comparison]:
        """What is compared. read: gives the figures of a cell."""

    def compare(
        self, above: Cell, below: Cell, read: Read, region: Region, required: bool = True
    ) -> Comparison:
        """The difference, or the log ratio, of two cells."""
        sign = "/" if self.is_log else "-"
        label = f"{_written(above, below)} {sign} {_written(below, above)}"
        ours, theirs = read(above), read(below)
        seeds = [seed for seed in sorted(ours.values) if seed in theirs.values]
        found = {seed: self._difference(seed, ours, theirs) for seed in seeds}
        unit: Unit = "turn" if self.metric in TIMED else "seed"
        return Comparison(label, found, region, self.is_log, required, unit=unit)

    def _difference(self, seed: int, ours: Series, theirs: Series) -> float | None:
        a, b = ours.values[seed], theirs.values[seed]
        if self.metric in TO_TARGET:
            last = ours.rounds if ours.rounds == theirs.rounds else None
            return st.log_rounds(a, b, last if self.metric == "rounds_to_target" else None)
        if a is None or b is None:
            return None
        if not self.is_log:
            return a - b
        return math.log(a / b) if a > 0 and b > 0 else None


def _written(cell: Cell, other: Cell) -> str:
    """A cell for a message: its row, and its column where the two differ in it."""
    return cell[0] if cell[1] == other[1] else f"{cell[0]} @ {cell[1]}"
