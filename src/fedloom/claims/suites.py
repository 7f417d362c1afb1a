"""Suites: the runs that decide claims of the papers, as data that was fixed before they began.

suites.toml holds a [rule], which says how verdicts are reached, and for every [[suite]]:

id, title, scale  scale: what is run, in words
as                another suite, whose scale, overrides, seeds, gate and targets this one shares
optional          true if no headline claim needs it
overrides         settings over those of the presets' small scale, as for --set
seeds             fixed beforehand
gate              conditions under which the runs are a fair test; all must hold, on the mean over
                  seeds. They look at the row `of`, or at `better` and `than`; at the measure of
                  `column`, by default the first with that row, or at `measure`. By kind:
                    score        it is above `above`
                    gain         `better` gains at least `at_least` on `than`
                    plateau      it gains less than `below` over the share `last` of the rounds
                    train_loss   the training loss, the mean over a round's local steps, falls below
                                 `below` in round `by_round` or earlier
                    client_size  clients hold at least `at_least` samples on average
gate_seed         the seed on which a gate is tried; it is not reported
tried             the scales at which the gate was tried on that seed, and how far each got; if
                  all of them end with "not met", no scale was found
targets           columns that count rounds to an accuracy relative to a row's: within each seed,
                  `times` the `measure` of the row `of`, plus `plus` points; `ema` is the momentum
                  of the curve on which it is reached
claims            the claims that its runs decide
commands          of a suite without runs: what produces its figures
[[suite.runs]]    preset; rows; columns; seeds, if not the suite's
                  analysis: `only`, `samples` and `probes` of `fedloom analyze`, and for each of its
                  columns where analysis.json has the figure
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from fedloom.core.errors import UserError, did_you_mean, shown_text

FILE = "suites.toml"
# taken from the suite that `as` names
SHARED = ("scale", "overrides", "seeds", "gate", "gate_seed", "tried", "targets")


@dataclass(frozen=True)
class Analysis:
    """What `fedloom analyze` computes of every run of a group.

    columns: for each column of the table, where analysis.json has its figure.
    """

    only: tuple[str, ...]
    samples: int
    probes: int
    columns: Mapping[str, tuple[str | int, ...]]


@dataclass(frozen=True)
class RunGroup:
    """Cells of one preset: rows, columns and the seeds to run them with."""

    preset: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    seeds: tuple[int, ...]
    analysis: Analysis | None = None


@dataclass(frozen=True)
class Target:
    """A column that counts rounds to an accuracy which depends on another row of the same seed.

    The accuracy is `times` that row's measure, plus `plus` points. ema: see metrics/measures.py.
    """

    column: str
    of: str
    measure: str
    times: float = 1.0
    plus: float = 0.0
    ema: float = 0.0


@dataclass(frozen=True)
class Suite:
    """The runs that decide some claims, and under which conditions they are a fair test."""

    id: str
    title: str
    scale: str
    claims: tuple[str, ...]
    overrides: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    gate: tuple[Mapping[str, Any], ...] = ()
    gate_seed: int = 0
    tried: tuple[str, ...] = ()
    targets: tuple[Target, ...] = ()
    runs: tuple[RunGroup, ...] = ()
    commands: tuple[str, ...] = ()
    optional: bool = False

    @property
    def papers(self) -> list[str]:
        """The papers whose tables it runs, or whose claims it decides."""
        names = [*self.claims, *(group.preset for group in self.runs)]
        return sorted({name.partition("/")[0] for name in names})

    @property
    def is_gate_met_nowhere(self) -> bool:
        """Whether the gate was tried, and was not met at any scale."""
        return bool(self.tried) and all(trial.endswith("not met") for trial in self.tried)


@dataclass(frozen=True)
class Rule:
    """How verdicts are reached; the fields are those of [rule] in the file."""

    unit: str
    confidence: float
    extended_confidence: float
    equal_confidence: float
    minimum_seeds: int


@dataclass(frozen=True)
class _File:
    rule: Rule
    suites: Mapping[str, Suite] = field(default_factory=dict)


def suites() -> Mapping[str, Suite]:
    """All suites by id, in the order of the file."""
    return _file().suites


def suite(name: str) -> Suite:
    """The suite of that id; a UserError with the nearest one if there is none."""
    if name not in suites():
        guess = did_you_mean(name.lower(), suites())
        choices = ", ".join(suites())  # all of them: no other command lists suites
        raise UserError(f"no suite '{shown_text(name)}'{guess} (choices: {choices})")
    return suites()[name]


def rule() -> Rule:
    """How verdicts are reached."""
    return _file().rule


@cache
def _file() -> _File:
    text = resources.files(__package__).joinpath(FILE).read_text(encoding="utf-8")
    return read(text)


def read(text: str) -> _File:
    """The rule and the suites that a TOML text describes."""
    raw = tomllib.loads(text)
    by_id = {entry["id"]: entry for entry in raw["suite"]}
    found = {name: _suite(entry, by_id) for name, entry in by_id.items()}
    return _File(Rule(**raw["rule"]), MappingProxyType(found))


def _suite(raw: Mapping[str, Any], others: Mapping[str, Mapping[str, Any]]) -> Suite:
    base = others[raw["as"]] if "as" in raw else {}
    shared = {key: base[key] for key in SHARED if key in base}
    facts = {**shared, **{key: value for key, value in raw.items() if key != "as"}}
    seeds = tuple(facts.get("seeds", ()))
    return Suite(
        **{
            **facts,
            "seeds": seeds,
            "claims": tuple(facts["claims"]),
            "overrides": tuple(facts.get("overrides", ())),
            "tried": tuple(facts.get("tried", ())),
            "gate": tuple(map(MappingProxyType, facts.get("gate", ()))),
            "targets": tuple(Target(**target) for target in facts.get("targets", ())),
            "runs": tuple(_group(group, seeds) for group in facts.get("runs", ())),
            "commands": tuple(facts.get("commands", ())),
        }
    )


def _group(raw: Mapping[str, Any], seeds: Sequence[int]) -> RunGroup:
    analysis = raw.get("analysis")
    return RunGroup(
        raw["preset"],
        tuple(raw["rows"]),
        tuple(raw["columns"]),
        tuple(raw.get("seeds", seeds)),
        None if analysis is None else _analysis(analysis),
    )


def _analysis(raw: Mapping[str, Any]) -> Analysis:
    columns = {name: tuple(path) for name, path in raw["columns"].items()}
    return Analysis(tuple(raw["only"]), raw["samples"], raw["probes"], columns)
