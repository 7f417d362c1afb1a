"""A claim of a paper as data, read from PAPER.toml next to this file.

[needs.NAME]  what a fair small-scale test needs, shared by several claims
[[claim]]
id        PAPER/NAME
where     the table, figure or section
text      the claim in our own words
kind      gain, order, ratio, range, monotone or equal-within: what sort of statement it is
printed   the paper's numbers as it prints them: a label with a value, with a value and those it is
          compared with (against), or with values in order; empty if the paper gives no number
rule      what decides it (rules.py)
preset    the table that tests it: name, rows, columns ("*": several); also: further tables with
          cells of the rule; command: how to count a cost that no table prints
needs     what a fair test needs: the name of a shared table, or a table
cost      seconds, minutes or hours of one core at a sensible small scale
pick      one of the claims that the suites were planned for
suite     the suite of runs that is to decide it
outside   results published by others

Whether a claim holds is not in these files: verdicts are computed from results/*.json.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from fedloom.claims.comparison import Cell
from fedloom.claims.rule import Rule
from fedloom.claims.rules import parse_rule
from fedloom.core.errors import UserError, unknown_name

PAPERS = ("fedalign", "fedmlb", "fedmix", "fedafa")
ANY = "*"


class Part(BaseModel):
    """A table of a claims file: fixed keys, and it does not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


class PrintedNumber(Part):
    """A number as the paper prints it, or several in order. against: what it is compared with."""

    label: str
    value: str | None = None
    values: tuple[str, ...] = ()
    against: tuple[str, ...] = ()

    @property
    def texts(self) -> list[str]:
        """All printed texts."""
        return [text for text in (self.value, *self.values, *self.against) if text is not None]


class TestedBy(Part):
    """The table whose cells a claim is about."""

    name: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    also: tuple[str, ...] = ()
    command: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """All tables that may hold a cell, this one first."""
        return (self.name, *self.also)

    @property
    def only_column(self) -> str | None:
        """The column, if there is only one."""
        return self.columns[0] if len(self.columns) == 1 and ANY not in self.columns else None


class Claim(Part):
    """See the module's docstring for the fields."""

    id: str
    where: str
    text: str
    kind: Literal["gain", "order", "ratio", "range", "monotone", "equal-within"]
    printed: tuple[PrintedNumber, ...]
    rule: Rule
    preset: TestedBy
    needs: Mapping[str, str] = Field(default_factory=dict)
    cost: Literal["seconds", "minutes", "hours"]
    pick: bool = False
    suite: str | None = None
    outside: str | None = None

    @field_validator("rule", mode="before")
    @classmethod
    def _parse_rule(cls, raw: Any) -> Rule:
        return parse_rule(raw)

    @property
    def paper(self) -> str:
        """The paper's name, which the id begins with."""
        return self.id.partition("/")[0]

    @property
    def cells(self) -> list[Cell]:
        """The rows and columns that the rule compares."""
        return self.rule.cells(self.preset.only_column)


def claims(paper: str | None = None) -> tuple[Claim, ...]:
    """All claims, or those of one paper; a UserError if there is no such paper."""
    if paper is None:
        return tuple(claim for name in PAPERS for claim in _claims_of(name))
    if paper not in PAPERS:
        raise unknown_name("paper with claims", paper, PAPERS)
    return _claims_of(paper)


@cache
def _claims_of(paper: str) -> tuple[Claim, ...]:
    file = resources.files(__package__).joinpath(f"{paper}.toml")
    return parse_claims(file.read_text(encoding="utf-8"), paper)


def parse_claims(text: str, paper: str) -> tuple[Claim, ...]:
    """The claims of a file; a UserError names the claim and the field that are wrong."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"the claims of '{paper}' are not valid TOML: {error}") from None
    shared = raw.get("needs", {})
    parsed = tuple(_parse_claim(claim, shared) for claim in raw.get("claim", []))
    ids = [claim.id for claim in parsed]
    for name in ids:
        if ids.count(name) > 1:
            raise UserError(f"two claims are called '{name}'; give each its own id")
        if not name.startswith(f"{paper}/"):
            raise UserError(f"claim '{name}' is in the file of '{paper}'; its id must begin so")
    return parsed


def _parse_claim(raw: Mapping[str, Any], shared_needs: Mapping[str, Any]) -> Claim:
    name, needs = raw.get("id", "without an id"), raw.get("needs", {})
    if isinstance(needs, str) and needs not in shared_needs:
        error = unknown_name("shared needs", needs, shared_needs)
        raise UserError(f"claim '{name}': {error}")
    try:
        claim = Claim.model_validate(
            {**raw, "needs": shared_needs[needs] if isinstance(needs, str) else needs}
        )
        _ = claim.cells  # every cell has a column
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UserError(f"claim '{name}', field '{where}': {first['msg']}") from None
    except UserError as error:
        raise UserError(f"claim '{name}': {error}") from None
    return claim
