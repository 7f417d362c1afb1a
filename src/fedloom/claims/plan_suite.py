"""Plans the runs of a suite and checks every one of them before the first begins.

A run's folder is named by its settings, so that presets, suites and papers that need the same run
share it, and a command that is repeated finds what it has finished.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedloom.claims.claim import PAPERS, Claim, claims
from fedloom.claims.claim_runs import run_groups
from fedloom.claims.overridden import changed_settings
from fedloom.claims.suites import RunGroup, Suite, rule, suites
from fedloom.core.errors import UserError, did_you_mean, shown_text
from fedloom.experiment.identity import CurrentData
from fedloom.experiment.schedule import PlannedRun, folder_name, plan_seeds
from fedloom.reports.paper_table import TableCell, check_data, check_measures
from fedloom.settings.config import DEFAULTS, Config, load
from fedloom.settings.overrides import assignment, overlay
from fedloom.settings.paper_table import Column, Row, Scale, Settings, Table
from fedloom.settings.presets import names, preset

DIGITS = 10  # of a checksum in the name of a folder
PAPER_SCALE = "the paper's settings instead of the suite's"
Override = Callable[[Settings], Settings]


@dataclass(frozen=True)
class SuiteCell:
    """A cell of one of the suite's tables, with its runs. group: the part of the suite it is in."""

    preset: str
    cell: TableCell
    group: RunGroup


@dataclass(frozen=True)
class SuitePlan:
    """A suite with all its cells. changes: the settings that the user has changed."""

    suite: Suite
    cells: tuple[SuiteCell, ...]
    changes: tuple[str, ...] = ()

    @property
    def scale(self) -> str:
        """What is run, in words, and which settings were changed."""
        changed = f"; changed: {', '.join(self.changes)}" if self.changes else ""
        return f"{self.suite.scale}{changed}"

    @property
    def runs(self) -> list[PlannedRun]:
        """Each run once, by seed: if only some are made, they can be compared."""
        found = {run.path: run for cell in self.cells for run in cell.cell.runs}
        return sorted(found.values(), key=lambda run: run.seed)

    def cell(self, row: str, column: str | None = None) -> SuiteCell | None:
        """The first cell with this row, and with this column if one is named."""
        found = (
            cell
            for cell in self.cells
            if cell.cell.row.name == row and column in (None, cell.cell.column.name)
        )
        return next(found, None)


def suites_for(name: str) -> list[Suite]:
    """The suites of a paper, or the part of a suite that decides one claim.

    A claim without a suite has one made of its cells, at the small scale of their preset.
    """
    if name in PAPERS:
        return [s for s in suites().values() if name in s.papers and s.runs and not s.optional]
    found = [claim for claim in claims() if claim.id == name]
    if not found:
        raise _no_table(name)
    return [_suite_of_claim(found[0])]


def _no_table(name: str) -> UserError:
    """What can be named instead: the tables of the paper that the name begins with, or papers."""
    if name in suites():
        return UserError(f"'{name}' is a suite, not a table; run it with: --suite {name}")
    tables = [table for table in names() if "/" in table]
    guess = did_you_mean(name, [*PAPERS, *tables, *(claim.id for claim in claims())])
    paper = name.partition("/")[0]
    listed = [table for table in tables if table.startswith(f"{paper}/")]
    see = f"the claims of {paper}: fedloom reproduce {paper} --claims"
    if not listed:
        listed = [*PAPERS, "or a table such as fedalign/table1"]
        see = "tables: fedloom presets; claims: fedloom reproduce --claims"
    choices = ", ".join(listed)
    return UserError(f"no table '{shown_text(name)}'{guess} (choices: {choices}; {see})")


def _suite_of_claim(claim: Claim) -> Suite:
    if claim.suite is None:
        seeds = tuple(range(rule().minimum_seeds))
        scale = "the small scale of its preset; no gate says whether that is a fair test"
        runs = run_groups(claim, seeds)
        return Suite(claim.id, claim.text, scale, (claim.id,), seeds=seeds, runs=runs)
    whole = suites()[claim.suite]
    if not whole.runs:
        raise UserError(
            f"'{claim.id}' is decided by a cost, not by runs: {'; '.join(whole.commands)}"
        )
    return replace(whole, claims=(claim.id,), runs=tuple(_needed_groups(claim, whole)))


def _needed_groups(claim: Claim, whole: Suite) -> Iterable[RunGroup]:
    """The groups with the rows that the claim, the gate and the targets look at."""
    keys = ("of", "better", "than")
    looked_at = {gate[key] for gate in whole.gate for key in keys if key in gate}
    looked_at |= {target.of for target in whole.targets}
    for group in whole.runs:
        wanted = set(looked_at)
        if group.preset in claim.preset.names:
            wanted |= set(_rows(claim))
        rows = tuple(row for row in group.rows if row in wanted)
        if rows:
            yield replace(group, rows=rows)


def _rows(claim: Claim) -> tuple[str, ...]:
    return tuple(dict.fromkeys(row for row, _ in claim.cells))


def with_seeds(suite: Suite, count: int | None) -> Suite:
    """The suite with another number of seeds, counted from 0; None keeps those that are fixed."""
    if count is None:
        return suite
    seeds = tuple(range(count))
    runs = tuple(replace(group, seeds=seeds) for group in suite.runs)
    return replace(suite, seeds=seeds, runs=runs)


def only_seed(suite: Suite, seed: int | None) -> Suite:
    """The suite with only one of its seeds, to be merged with the others later; None keeps all."""
    if seed is None:
        return suite
    if seed not in suite.seeds:
        seeds = ", ".join(map(str, suite.seeds))
        raise UserError(
            f"seed {seed} is not one of suite '{suite.id}'; its seeds were fixed: {seeds}"
        )
    runs = tuple(replace(group, seeds=(seed,)) for group in suite.runs if seed in group.seeds)
    return replace(suite, seeds=(seed,), runs=runs)


def gate_suite(suite: Suite) -> Suite:
    """What the gate of a suite looks at, on its own seed."""
    if not suite.gate:
        raise UserError(f"suite '{suite.id}' has no gate; run it with: --suite {suite.id}")
    seed = (suite.gate_seed,)
    keys = ("of", "better", "than")
    rows = {gate[key] for gate in suite.gate for key in keys if key in gate}
    groups = []
    for group in suite.runs:
        kept = tuple(row for row in group.rows if row in rows)
        rows -= set(kept)
        if kept:
            groups.append(replace(group, rows=kept, seeds=seed, analysis=None))
    return replace(suite, seeds=seed, runs=tuple(groups), targets=())


def plan_suite(suite: Suite, scale: Scale, out: Path, override: Override) -> SuitePlan:
    """All cells of a suite with their runs in folders below `out`.

    scale: at the paper's, the suite's overrides are left out. override: lays the settings given on
    the command line over those of a run.
    """
    if scale == "paper":
        suite = replace(suite, scale="the settings of the paper", overrides=())
    cells, data = [], CurrentData()
    changes = dict.fromkeys([PAPER_SCALE] if scale == "paper" else [])
    for group, row, column, fixed in suite_settings(suite, scale):
        settings = override(fixed)
        changes |= dict.fromkeys(changed_settings(load(fixed), load(settings)))
        label = _table(group.preset).label_of_runs(column)
        runs = _runs(row.name, settings, group.seeds, out, data, label)
        cells.append(SuiteCell(group.preset, TableCell(row, column, runs), group))
    plan = SuitePlan(suite, tuple(cells), tuple(changes))
    check_data(plan.runs)
    check_measures([cell.cell for cell in plan.cells])
    return plan


def suite_settings(suite: Suite, scale: Scale) -> Iterator[tuple[RunGroup, Row, Column, Settings]]:
    """The settings of every cell of a suite, as they are fixed."""
    changes = [assignment(text) for text in suite.overrides]
    for group in suite.runs:
        table = _table(group.preset).at(scale, group.rows, group.columns)
        for column in table.columns:
            for row in table.rows:
                settings = overlay(table.run_settings(row, column, scale), changes, DEFAULTS)
                yield group, row, column, settings


def _table(name: str) -> Table:
    found = preset(name).table
    if found is None:
        raise UserError(f"preset '{name}' is a single run, and a suite needs a table")
    return found


def _runs(
    row: str,
    settings: Settings,
    seeds: Sequence[int],
    out: Path,
    data: CurrentData,
    column: str,
) -> tuple[PlannedRun, ...]:
    folder = out / run_folder_name(load(settings))
    runs = []
    for seed in seeds:
        with_seed = overlay(settings, [("seed", seed)], DEFAULTS)
        runs += plan_seeds(row, with_seed, 1, folder, data, column)
    return tuple(runs)


def run_folder_name(config: Config) -> str:
    """A name for the folder of all seeds of these settings: what is run, and a checksum.

    Settings at their defaults do not count, so that a version with a new setting finds the runs.
    """
    facts = config.model_dump(mode="json", exclude={"seed"}, exclude_defaults=True)
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    title = folder_name(f"{config.data.name}-{config.model.name}-{config.title}")
    return f"{title}-{digest[:DIGITS]}"
