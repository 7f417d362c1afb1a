"""The result file of a suite, from its run folders: figures by seed, the gate, and every run.

Its fields are described in result_files.py; row_files.py writes the settings and the log of each
row beside it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedloom.claims.analyses import has_analysis
from fedloom.claims.commits import fixed_at, made_at_commit
from fedloom.claims.gates import gate_result
from fedloom.claims.measure_words import target_in_words
from fedloom.claims.plan_suite import SuiteCell, SuitePlan
from fedloom.claims.row_files import SuiteRow, suite_rows, write_rows
from fedloom.claims.suites import Suite, Target, suites
from fedloom.experiment.schedule import PlannedRun
from fedloom.experiment.stored_run import StoredRun, gave_up, read_run
from fedloom.metrics.measures import measured
from fedloom.reports.client_scores import final_scores
from fedloom.runs.durable_files import write_durably
from fedloom.runs.folder_layout import ANALYSIS, CONFIG, METRICS

FORMAT = 1
Json = dict[str, Any]
Finished = Mapping[Path, StoredRun]


def collect(plan: SuitePlan, made_at: str | None = None) -> Json:
    """What the finished runs of a suite have given, as JSON.

    made_at: the commit that the runs were made with; by default the present one, if that is sure.
    gave_up in the file: runs without figures, because their training diverged.
    """
    finished = finished_runs(plan.runs)
    rows = suite_rows(plan, finished)
    commit = made_at_commit(finished.values()) if made_at is None else made_at
    figures = [_figure(cell, plan, finished) for cell in plan.cells]
    figures += [figure for cell in plan.cells for figure in _analysed(cell, finished)]
    return {
        "format": FORMAT,
        "suite": plan.suite.id,
        "commit": commit,
        "fixed_at": "" if plan.changes else fixed_at(plan.suite, commit),
        "scale": plan.scale,
        "changed": list(plan.changes),
        "gate": gate_result(plan).describe(),
        "extended": _is_extended(plan.suite),
        "figures": _each_once(figure for figure in figures if figure["by_seed"]),
        "machine": _machine(finished.values()),
        "runs": [
            _run(finished[run.path], rows[run.path.parent])
            for run in plan.runs
            if run.path in finished
        ],
        "gave_up": [_folder(run.path) for run in plan.runs if gave_up(run.path)],
    }


def file_name(suite: Suite) -> str:
    """The name of its result file: the suite, or the claim if it is the part that decides one."""
    fixed = suites().get(suite.id)
    is_whole = fixed is None or fixed.claims == suite.claims
    return suite.id if is_whole else suite.claims[0]


def write_results(result: Json, folder: Path, name: str) -> Path:
    """Write a result file of that name into a folder; its path."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name.replace('/', '-')}.json"
    write_durably(file, (json.dumps(result, indent=1) + "\n").encode())
    return file


def write_row_files(plan: SuitePlan, result_file: Path) -> list[Path]:
    """Write the settings and the log of every row into a folder named after the result file."""
    rows = suite_rows(plan, finished_runs(plan.runs))
    return write_rows(list(rows.values()), result_file.with_suffix(""), plan.suite.id)


def finished_runs(runs: Sequence[PlannedRun]) -> dict[Path, StoredRun]:
    """The runs that are finished, by folder."""
    found = {run.path: read_run(run.path) for run in runs if (run.path / CONFIG).exists()}
    return {path: run for path, run in found.items() if run.result is not None}


def _each_once(figures: Iterable[Json]) -> list[Json]:
    return list({(f["preset"], f["row"], f["column"]): f for f in figures}.values())


def _is_extended(suite: Suite) -> bool:
    """Whether a run has a seed that was not fixed for its cell, even if it is the only seed run."""
    fixed = suites().get(suite.id)
    if fixed is None:
        return False
    fixed_seeds = _seeds_by_cell(fixed)
    return not set(suite.seeds) <= set(fixed.seeds) or any(
        not seeds <= fixed_seeds.get(cell, seeds) for cell, seeds in _seeds_by_cell(suite).items()
    )


def _seeds_by_cell(suite: Suite) -> dict[tuple[str, str, str], set[int]]:
    """The seeds of every preset, row and column that the suite runs."""
    found: dict[tuple[str, str, str], set[int]] = {}
    for group in suite.runs:
        for row in group.rows:
            for column in group.columns:
                found.setdefault((group.preset, row, column), set()).update(group.seeds)
    return found


def _figure(cell: SuiteCell, plan: SuitePlan, finished: Finished) -> Json:
    column = cell.cell.column
    targets = {target.column: target for target in plan.suite.targets}
    target = targets.get(column.name)
    by_seed: dict[str, float | None] = {}
    for run in cell.cell.runs:
        if run.path not in finished:
            continue
        stored = finished[run.path]
        measure = column.measure
        if target is not None:
            relative = _relative_measure(target, cell, plan, run.seed, finished)
            if relative is None:
                continue
            measure = relative
        value = measured(measure, stored.history.accuracy, final_scores(stored))
        by_seed[str(run.seed)] = value
    metric = column.measure if target is None else target_in_words(target)
    rounds = max((run.config.rounds for run in cell.cell.runs), default=0)
    return _figure_json(cell, column.name, metric, by_seed, rounds)


def _figure_json(
    cell: SuiteCell,
    column: str,
    metric: str,
    by_seed: Mapping[str, float | None],
    rounds: int,
) -> Json:
    return {
        "preset": cell.preset,
        "row": cell.cell.row.name,
        "column": column,
        "metric": metric,
        "rounds": rounds,
        "by_seed": dict(by_seed),
    }


def _relative_measure(
    target: Target, cell: SuiteCell, plan: SuitePlan, seed: int, finished: Finished
) -> str | None:
    """The measure of a target that depends on another row; None while that row is missing."""
    for other in plan.cells:
        if (other.preset, other.cell.row.name) != (cell.preset, target.of):
            continue
        for run in other.cell.runs:
            if run.seed == seed and run.path in finished:
                reference = measured(target.measure, finished[run.path].history.accuracy)
                assert reference is not None  # a measure of accuracy
                accuracy = min(max((target.times * reference + target.plus) / 100, 1e-9), 0.999999)
                return f"rounds(to={accuracy!r}, ema={target.ema!r})"
    return None


def _analysed(cell: SuiteCell, finished: Finished) -> list[Json]:
    """The figures of columns that are read off an analysis."""
    analysis = cell.group.analysis
    if analysis is None:
        return []
    found = []
    for column, path in analysis.columns.items():
        by_seed = {}
        for run in cell.cell.runs:
            file = run.path / ANALYSIS / "analysis.json"
            if run.path in finished and has_analysis(run.path, analysis):
                value: Any = json.loads(file.read_text(encoding="utf-8"))
                for step in path:
                    value = value[step]
                by_seed[str(run.seed)] = value
        rounds = max((run.config.rounds for run in cell.cell.runs), default=0)
        found.append(_figure_json(cell, column, ".".join(map(str, path)), by_seed, rounds))
    return found


def _folder(path: Path) -> str:
    """The name of a run's folder, with the one that it shares with other seeds."""
    return f"{path.parent.name}/{path.name}"


def _run(run: StoredRun, row: SuiteRow) -> Json:
    """What identifies a run: the rows it is for, its settings, log and final weights."""
    assert run.path is not None and run.result is not None  # it is finished
    identity = run.identity
    return {
        "folder": _folder(run.path),
        "file": row.name,
        "rows": [{"preset": preset, "row": name} for preset, name in row.served],
        "seed": run.config.seed,
        "rounds": run.result.rounds,
        "config_sha256": _sha256(run.path / CONFIG),
        "log_sha256": _sha256(run.path / METRICS),
        "weights_sha256": run.result.weights_sha256,
        "source_sha256": None if identity is None else identity.made_with.source,
        "seconds": run.result.seconds,
    }


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _machine(runs: Iterable[StoredRun]) -> Json:
    """What the runs were made with, as they record it; where they differ, all values."""
    facts: dict[str, list[Any]] = {}
    for run in runs:
        for name, value in asdict(run.identity.made_with).items() if run.identity else ():
            known = facts.setdefault(name, [])
            if value not in known:
                known.append(value)
    return {name: known[0] if len(known) == 1 else known for name, known in facts.items()}
