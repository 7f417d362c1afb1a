"""What methods cost: one method on a model, or a paper's table next to the numbers it prints.

A file PAPER/cost-TABLE.toml holds:

[cases.NAME]  what is counted: model, shape, classes; unit: the paper's name for `macs` MACs; note
[reasons]     why a number may differ from the printed one, one sentence each
[[rows]]      name; method, as on the command line; case; mflops, params_m: as printed, with all
              digits; why: the reason for each number that differs
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import resources
from importlib.resources.abc import Traversable
from types import MappingProxyType
from typing import Any, cast

import torch

from fedloom.core import user_code
from fedloom.core.errors import UserError, raise_all, unknown_name
from fedloom.core.key import Key
from fedloom.core.spec import Spec, parse
from fedloom.data.dataset import Dataset, Split
from fedloom.diagnostics.cost.count import Convention, Cost, count_cost
from fedloom.diagnostics.cost.toy_federation import Build, Workload, synthetic_samples
from fedloom.experiment.build import build_model, check_model
from fedloom.experiment.build_solver import build_rule, training_conflicts
from fedloom.methods import registry as methods
from fedloom.models import registry as models
from fedloom.settings import presets
from fedloom.settings.config import load

MILLION = 1e6
NO_SETTINGS: Mapping[str, Any] = MappingProxyType({})
MATCHES = "matches to the printed digit"
UNDECIDED = "undecided: the printed value lies within the error of the draws; raise --draws"


@dataclass(frozen=True)
class Case:
    """A model on samples of a shape. macs: the multiply-accumulates in one of the paper's units."""

    model: str
    shape: tuple[int, ...]
    classes: int
    unit: str = "MFLOPs"
    macs: float = MILLION
    note: str = ""

    def scene(self, method: str, batch: int, train: Mapping[str, Any] = NO_SETTINGS) -> Workload:
        """A method on the model; unknown names and wrong arguments are UserErrors.

        train: settings of the optimiser.
        """
        model, built = _parse_model(self.model), methods.build(parse(method))
        checked = load({"train": dict(train)}).train
        raise_all(training_conflicts(checked, built), "settings")
        check_model(model)
        samples = cast(Dataset, SampleShape(self.shape, range(self.classes)))
        build = partial(_build, model, samples)
        if user_code.is_reference(model.name):
            _check_takes(model, build, self.shape)
        return Workload(built, build, self.shape, self.classes, batch, build_rule(checked))


def _parse_model(text: str) -> Spec:
    specs = parse(text)
    if len(specs) != 1:
        raise UserError(
            f"--model '{text}' is not one model; "
            "write a name, name(argument=value), or file.py:function"
        )
    return specs[0]


@dataclass(frozen=True)
class SampleShape:
    """The part of a data set that building a model needs."""

    shape: tuple[int, ...]
    classes: range
    kind = "table"
    mean = std = ()

    @property
    def train(self) -> Split:
        """One sample of zeros."""
        return Split(torch.zeros(1, *self.shape), torch.zeros(1, dtype=torch.int64))


def _build(model: Spec, samples: Dataset, device: torch.device) -> Any:
    return build_model(model, samples, Key.root(0), torch.float32, device)


def _check_takes(spec: Spec, build: Build, shape: tuple[int, ...]) -> None:
    """Raise unless a user's model takes a sample of this shape; registered ones check that."""
    chain = build(torch.device("cpu")).eval()
    x = synthetic_samples(chain, shape, 1)
    try:
        with torch.no_grad():
            chain(x)
    except Exception as error:  # a user's model can fail in any way
        why = str(error) if type(error) is RuntimeError else f"{type(error).__name__}: {error}"
        kind = "numbers" if x.is_floating_point() else "tokens"
        raise UserError(
            f"model '{user_code.short_reference(spec.name)}' does not accept a sample of {kind} of "
            f"shape {shape}: {why}; change --shape or the model (text is told by its nn.Embedding)"
        ) from error


@dataclass(frozen=True)
class Row:
    """A method of a table, its numbers as printed, and why some of them cannot be matched."""

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
class CountedRow:
    """A row of a table and what we counted for it, in the paper's unit."""

    row: Row
    case: Case
    cost: Cost
    convention: Convention

    @property
    def numbers(self) -> dict[str, float]:
        """Our numbers, under the names of the printed ones."""
        return {
            "mflops": self.cost.macs(self.convention) / self.case.macs,
            "params_m": self.cost.stored(self.convention) / MILLION,
        }

    @property
    def verdicts(self) -> dict[str, str]:
        """For each number, whether it matches the printed one, and if not, why."""
        errors = {"mflops": self.cost.error * self.numbers["mflops"], "params_m": 0.0}
        return {
            name: verdict(getattr(self.row, name), ours, errors[name], self.row.why.get(name, ""))
            for name, ours in self.numbers.items()
        }

    def describe(self) -> dict[str, Any]:
        """As JSON; mflops in the unit of the table, macs as counted."""
        verdicts = self.verdicts
        mismatches = [f"{name} {text}" for name, text in verdicts.items() if text != MATCHES]
        return {
            "method": self.row.name,
            "spec": self.row.method,
            "case": self.row.case,
            **self.numbers,
            "printed_mflops": float(self.row.mflops),
            "printed_params_m": float(self.row.params_m),
            "verdict": "; ".join(mismatches) or MATCHES,
            "verdicts": verdicts,
            "unit": self.case.unit,
            **describe_cost(self.cost, self.convention),
        }


def describe_cost(counted: Cost, convention: Convention) -> dict[str, Any]:
    """Everything that was counted, as JSON."""
    return {
        "convention": convention,
        "macs": counted.macs(convention),
        "macs_error": counted.error * counted.macs(convention),
        "training_macs": counted.training_macs,
        "stored_parameters": counted.stored(convention),
        "bytes_up": counted.bytes_up,
        "bytes_down": counted.bytes_down,
    }


def verdict(printed: str, ours: float, error: float, why: str) -> str:
    """Whether our number matches the printed one to its last digit.

    error: the standard error of ours, if it is a mean over draws; within it nothing is decided.

    >>> verdict("87.3", 87.254016, 0.0, "")
    'matches to the printed digit'
    >>> verdict("82.4", 83.13, 0.1, "another rule")
    'differs: another rule'
    """
    digits = len(printed.partition(".")[2])
    if f"{ours:.{digits}f}" == printed:
        return MATCHES
    tolerance = 0.5 * 10.0**-digits + 2 * error
    if error and abs(ours - float(printed)) <= tolerance:
        return UNDECIDED
    return f"differs: {why or 'the reason is unknown'}"


def names() -> list[str]:
    """The tables with cost columns."""
    return [name for name in presets.names() if _file(name).is_file()]


def _file(name: str) -> Traversable:
    folder, _, table_name = name.rpartition("/")
    folders = filter(None, folder.split("/"))
    return resources.files(presets).joinpath(*folders, f"{presets.COST}{table_name}.toml")


def table(name: str) -> CostTable:
    """The cost columns of that table; a UserError if it has none."""
    if name not in names():
        raise unknown_name("preset with cost columns", name, names(), see="fedloom presets")
    raw = tomllib.loads(_file(name).read_text(encoding="utf-8"))
    cases = {
        case_name: Case(**{**case, "shape": tuple(case["shape"])})
        for case_name, case in raw["cases"].items()
    }
    return CostTable(name, cases, tuple(_row(row, raw["reasons"]) for row in raw["rows"]))


def _row(raw: Mapping[str, Any], reasons: Mapping[str, str]) -> Row:
    why = {number: reasons[reason] for number, reason in raw.get("why", {}).items()}
    return Row(**{**raw, "why": why})


def count(cost_table: CostTable, row: Row, convention: Convention, draws: int) -> CountedRow:
    """Count the cost of one row."""
    case = cost_table.cases[row.case]
    return CountedRow(row, case, count_cost(case.scene(row.method, batch=2), draws), convention)


def case_of(model: str, shape: str | None, classes: int | None) -> Case:
    """A model with the given shape and classes; by default those it was designed for."""
    default = ((3, 32, 32), 10)
    usual_shape, usual_classes = models.TYPICAL_INPUT.get(_parse_model(model).name, default)
    if classes is not None and classes < 2:
        raise UserError(f"--classes {classes} must be at least 2: a classifier needs two classes")
    return Case(model, _parse_shape(shape) if shape else usual_shape, classes or usual_classes)


def _parse_shape(text: str) -> tuple[int, ...]:
    sides = text.lower().split("x")
    if not all(side.isdigit() and int(side) for side in sides):
        raise UserError(
            f"--shape '{text}' is not the shape of one sample; "
            "write it as 3x32x32 (channels, height, width), or 80"
        )
    return tuple(map(int, sides))
