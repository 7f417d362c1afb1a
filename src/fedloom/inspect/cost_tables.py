"""What methods cost: one on a model, or those of a paper's table beside the numbers that it prints.

A file PAPER/cost-TABLE.toml holds these:

[cases.NAME]  what is counted: model, shape, classes; unit: what the paper calls `macs` MACs; note
[reasons]     why a number may not come out, one line each
[[rows]]      name; method, as on the command line; case; mflops, params_m: as printed, digit by digit; why: a reason for each
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import resources
from typing import Any, cast

import torch

from fedloom.core.errors import UserError, unknown_name
from fedloom.core.key import Key
from fedloom.core.spec import Spec, parse
from fedloom.data.dataset import Dataset
from fedloom.diagnostics.cost.count import Convention, Cost, count_cost
from fedloom.diagnostics.cost.toy_federation import Workload
from fedloom.experiment.build import build_model, check_model
from fedloom.methods import registry as methods
from fedloom.models import registry as models
from fedloom.settings import presets

MILLION = 1e6
SAME = "matches to the printed digit"
NEAR = "undecided: the printed value lies within the error of the draws; raise --draws"


@dataclass(frozen=True)
class Case:
    """A model on samples of a shape. macs: how many multiply-accumulates the paper's unit stands for."""

    model: str
    shape: tuple[int, ...]
    classes: int
    unit: str = "MFLOPs"
    macs: float = MILLION
    note: str = ""

    def scene(self, method: str, batch: int) -> Workload:
        """A method on the model; wrong names and arguments are refused here."""
        word = _model_word(self.model)
        check_model(word)
        size = cast(Dataset, Size(self.shape, range(self.classes)))
        build = partial(_built, word, size)
        return Workload(methods.build(parse(method)), build, self.shape, self.classes, batch)


def _model_word(text: str) -> Spec:
    words = parse(text)
    if len(words) != 1:
        raise UserError(
            f"--model '{text}' is not one model; write a name, name(argument=value), or file.py:function"
        )
    return words[0]


@dataclass(frozen=True)
class Size:
    """All that the making of a model asks of a data set."""

    shape: tuple[int, ...]
    classes: range


def _built(word: Spec, size: Dataset, device: torch.device) -> Any:
    return build_model(word, size, Key.root(0), torch.float32, device)


@dataclass(frozen=True)
class Row:
    """A method of a table: numbers as printed, and for those that do not come out why."""

    name: str
    method: str
    case: str
    mflops: str
    params_m: str
    why: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CostTable:
    """The cost columns of a paper's table."""

    name: str
    cases: Mapping[str, Case]
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Line:
    """A row beside what was counted, in the paper's unit."""

    row: Row
    case: Case
    cost: Cost
    convention: Convention

    @property
    def numbers(self) -> dict[str, float]:
        """Ours, under the names of the printed ones."""
        return {
            "mflops": self.cost.macs(self.convention) / self.case.macs,
            "params_m": self.cost.stored(self.convention) / MILLION,
        }

    @property
    def verdicts(self) -> dict[str, str]:
        """Of each number whether it comes out as printed, and else why."""
        errors = {"mflops": self.cost.error * self.numbers["mflops"], "params_m": 0.0}
        return {
            what: verdict(getattr(self.row, what), ours, errors[what], self.row.why.get(what, ""))
            for what, ours in self.numbers.items()
        }

    def describe(self) -> dict[str, Any]:
        """As JSON; mflops in the unit of the table, macs as they are."""
        said = {k: v for k, v in self.verdicts.items() if v != SAME}
        return {
            "method": self.row.name,
            "word": self.row.method,
            "case": self.row.case,
            **self.numbers,
            "printed_mflops": float(self.row.mflops),
            "printed_params_m": float(self.row.params_m),
            "verdict": "; ".join(f"{k} {v}" for k, v in said.items()) or SAME,
            "verdicts": self.verdicts,
            "unit": self.case.unit,
            **figures(self.cost, self.convention),
        }


def figures(found: Cost, convention: Convention) -> dict[str, Any]:
    """All that is counted, as JSON."""
    return {
        "convention": convention,
        "macs": found.macs(convention),
        "macs_error": found.error * found.macs(convention),
        "training_macs": found.training_macs,
        "stored_parameters": found.stored(convention),
        "bytes_up": found.bytes_up,
        "bytes_down": found.bytes_down,
    }


def verdict(printed: str, ours: float, error: float, why: str) -> str:
    """Whether a number comes out as printed; of one that is a mean over draws that may not be known.

    >>> verdict("87.3", 87.254016, 0.0, "")
    'matches to the printed digit'
    >>> verdict("82.4", 83.13, 0.1, "another rule")
    'differs: another rule'
    """
    digits = len(printed.partition(".")[2])
    if f"{ours:.{digits}f}" == printed:
        return SAME
    if abs(ours - float(printed)) <= 0.5 * 10.0**-digits + 2 * error and error:
        return NEAR
    return f"differs: {why or 'no reason is known'}"


def names() -> list[str]:
    """The tables with cost columns."""
    return [n for n in presets.names() if _file(n).is_file()]


def _file(name: str) -> Any:
    folder, _, table = name.rpartition("/")
    return resources.files(presets).joinpath(
        *filter(None, folder.split("/")), f"{presets.COST}{table}.toml"
    )


def table(name: str) -> CostTable:
    """The cost columns of that name."""
    if name not in names():
        raise unknown_name("preset with cost columns", name, names(), see="fedloom presets")
    raw = tomllib.loads(_file(name).read_text(encoding="utf-8"))
    cases = {n: Case(**{**c, "shape": tuple(c["shape"])}) for n, c in raw["cases"].items()}
    return CostTable(name, cases, tuple(_row(row, raw["reasons"]) for row in raw["rows"]))


def _row(raw: Mapping[str, Any], reasons: Mapping[str, str]) -> Row:
    return Row(**{**raw, "why": {what: reasons[name] for what, name in raw.get("why", {}).items()}})


def count(prepared: CostTable, row: Row, convention: Convention, draws: int) -> Line:
    """One row, counted."""
    case = prepared.cases[row.case]
    return Line(row, case, count_cost(case.scene(row.method, batch=2), draws), convention)


def case_of(model: str, shape: str | None, classes: int | None) -> Case:
    """A model on the samples it was made for, or on others."""
    typical, many = models.TYPICAL_INPUT.get(_model_word(model).name, ((3, 32, 32), 10))
    if classes is not None and classes < 2:
        raise UserError(
            f"--classes {classes} must be at least 2; there is nothing to tell apart in fewer"
        )
    return Case(model, _shape(shape) if shape else typical, classes or many)


def _shape(text: str) -> tuple[int, ...]:
    sides = text.lower().split("x")
    if not all(side.isdigit() and int(side) for side in sides):
        raise UserError(
            f"--shape '{text}' is not a shape of one sample; write it as 3x32x32 (channels, height, width), or 80"
        )
    return tuple(map(int, sides))
