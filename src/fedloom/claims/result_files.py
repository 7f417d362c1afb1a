"""The figures that a suite of runs has given, by seed: results/SUITE.json.

format         1
suite, commit  which suite, and the commit that it was run with
scale          how its runs differ from the paper's, in words
changed        what the user has changed of the suite's settings; then the gate is not known
gate           met: whether the runs are a fair test (null: not known); why
gate_by_claim  the same for claims that need something else, by their id
extended       true after the one extension to more seeds: then judged at 99 %
figures        preset, row, column: the cell; metric: what was read off the runs; rounds: how long
               they were; by_seed: values, null where a target was not reached
fixed_at       the commit that last changed the suites before the runs, if the suite and the rule
               have not changed since; empty if that is not certain
machine        the software and the processor of the runs; a list where runs differ
runs           every finished run: folder; file: the name of its settings and log in SUITE/
               (row_files.py); rows: the preset and row of each table row that it is for; seed;
               rounds; seconds of its rounds; checksums of its settings (config.toml), its log
               (metrics.jsonl), its final global weights and the source code that ran
gave_up        the folders of runs that diverged and have no figures
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from fedloom.claims.claim import Claim
from fedloom.claims.comparison import Cell, Series
from fedloom.claims.suites import suites
from fedloom.core.errors import UserError
from fedloom.settings import presets

SPREAD = "std_over_choices"  # the metric of a rule on how much choices of the same size differ


class Part(BaseModel):
    """A part of a result file. Further keys are allowed: they describe the runs."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Gate(Part):
    """Whether runs are a fair test, and why; met is None if that is not known."""

    met: bool | None
    why: str


class Figure(Part):
    """What was read off the runs of one cell, by seed."""

    preset: str
    row: str
    column: str
    metric: str
    by_seed: Mapping[int, FiniteFloat | None]
    rounds: int | None = None


class ResultFile(Part):
    """See the module's docstring for the fields."""

    format: Literal[1]
    suite: str
    commit: str
    fixed_at: str = ""
    scale: str
    gate: Gate
    gate_by_claim: Mapping[str, Gate] = Field(default_factory=dict)
    extended: bool = False
    figures: tuple[Figure, ...]
    machine: Mapping[str, Any] = Field(default_factory=dict)
    runs: Sequence[Any] = ()
    gave_up: Sequence[str] = ()

    def gate_of(self, claim: Claim) -> Gate:
        """The gate that a test of this claim has to pass.

        The gate of a suite is about the claims that the suite names. Its runs may have the rows of
        others too, whose conditions nobody has checked.
        """
        planned = suites().get(self.suite)
        if planned is not None and claim.id not in planned.claims:
            return Gate(met=None, why=_no_gate(claim))
        return self.gate_by_claim.get(claim.id, self.gate)

    def reader(self, claim: Claim) -> Callable[[Cell], Series] | None:
        """A function that gives the figures of a cell; None if a cell of the claim is missing."""
        found = {cell: self._series(claim, cell) for cell in claim.cells}
        complete = {cell: series for cell, series in found.items() if series is not None}
        return complete.__getitem__ if len(complete) == len(found) else None

    def _series(self, claim: Claim, cell: Cell) -> Series | None:
        row, column = cell
        for name in claim.preset.names:
            figures = {f.row: f for f in self.figures if (f.preset, f.column) == (name, column)}
            if row in figures:
                return Series(figures[row].by_seed, figures[row].rounds)
            chosen = [figures[r] for r in _rows_of_choice(name, row) if r in figures]
            if chosen and len(chosen) == len(_rows_of_choice(name, row)):
                return _over_choices(chosen, claim.rule.metric == SPREAD)
        return None


def _no_gate(claim: Claim) -> str:
    if claim.suite is None:
        return "no gate was fixed for this claim"
    why = f"this claim has the gate of suite {claim.suite}, which was not checked on these runs"
    planned = suites().get(claim.suite)
    nowhere = planned is not None and planned.is_gate_met_nowhere
    return f"{why} and was met at none of the scales tried for it" if nowhere else why


@cache
def _rows_of_choice(preset_name: str, choice: str) -> tuple[str, ...]:
    """The rows of a table that are choices such as "2 of 5"."""
    if preset_name not in presets.names():
        return ()
    table = presets.preset(preset_name).table
    return tuple(row.name for row in table.rows if row.choice == choice) if table else ()


def _over_choices(figures: Sequence[Figure], spread: bool) -> Series:
    """By seed the mean over the choices, or their standard deviation."""
    of_seeds = {
        seed: [figure.by_seed.get(seed) for figure in figures] for seed in figures[0].by_seed
    }
    complete = {
        seed: [v for v in values if v is not None]
        for seed, values in of_seeds.items()
        if None not in values
    }
    reduce = statistics.stdev if spread else statistics.fmean
    return Series({seed: reduce(values) for seed, values in complete.items()})


def parse_result(text: str, name: str) -> ResultFile:
    """The result file with this content; a UserError names the file and the wrong field."""
    try:
        parsed = ResultFile.model_validate(json.loads(text))
    except json.JSONDecodeError as error:
        raise UserError(f"result file '{name}' is not valid JSON: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UserError(f"result file '{name}', field '{where}': {first['msg']}") from None
    cells = [(f.preset, f.row, f.column) for f in parsed.figures]
    for cell in cells:
        if cells.count(cell) > 1:
            raise UserError(
                f"result file '{name}' has two figures for row '{cell[1]}', column '{cell[2]}' "
                f"of {cell[0]}; keep one"
            )
    return parsed


@cache
def packaged_results() -> tuple[ResultFile, ...]:
    """The result files of the package, by name."""
    folder = resources.files(__package__).joinpath("results")
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".json")), key=lambda f: f.name)
    return tuple(parse_result(f.read_text(encoding="utf-8"), f.name) for f in files)


def read_results(paths: Iterable[Path]) -> tuple[ResultFile, ...]:
    """The result files at these paths."""
    return tuple(parse_result(path.read_text(encoding="utf-8"), path.name) for path in paths)
