"""`fedloom.compare`: runs of a session, run folders, or an experiment with several methods."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedloom.api.experiment import Experiment
from fedloom.api.lists import check_list
from fedloom.api.run import Run
from fedloom.core.errors import UserError
from fedloom.core.whole_number import count
from fedloom.experiment.schedule import folder_name
from fedloom.experiment.stored_run import StoredRun, read_run
from fedloom.metrics.curve import CurveOptions
from fedloom.reports.by_method import FREE
from fedloom.reports.comparison import Comparison, compare_runs
from fedloom.runs.folder_layout import each_run


def compare(
    *runs: Run | str | Path | Experiment,
    methods: Sequence[Any] = (),
    seeds: int = 1,
    folder: str | Path | None = None,
    options: CurveOptions | None = None,
) -> Comparison:
    """Compare runs: a row for each method, over its seeds.

    runs      Run objects or run folders, of which a folder of a comparison stands for all runs
              inside it; or one Experiment, together with `methods`
    methods   methods to run with the settings of that experiment, on the same clients and batches
    seeds     number of seeds, counted from the experiment's
    folder    where to keep these runs; finished ones are not repeated, interrupted ones resume
    """
    check_list("methods", methods, '["fedavg", "fedprox"]')
    if methods:
        if len(runs) != 1 or not isinstance(runs[0], Experiment):
            raise UserError("methods= needs one Experiment whose settings they share")
        return _compare_methods(runs[0], methods, count("seeds", seeds), folder, options)
    stored = [found for run in runs for found in _stored(run)]
    return compare_runs(_by_title(stored), options)


def _stored(run: Any) -> list[StoredRun]:
    if isinstance(run, Run):
        return [run.stored]
    if isinstance(run, str | Path):
        return [read_run(folder) for folder in each_run([Path(run)])]
    raise UserError(
        f"{run!r} is a {type(run).__name__}; pass runs, run folders, or an Experiment with methods="
    )


def _by_title(runs: Sequence[StoredRun]) -> dict[str, list[StoredRun]]:
    """Runs that differ in nothing but their seed become one row; others get names of their own.

    So does a run that occurs twice: as two seeds of a row, it would make the deviation too small.
    """
    groups: dict[str, list[StoredRun]] = {}
    for run in runs:
        label = next((n for n, row in groups.items() if _is_seed_of(run, row)), _free(groups, run))
        groups.setdefault(label, []).append(run)
    return groups


def _is_seed_of(run: StoredRun, row: Sequence[StoredRun]) -> bool:
    """Whether the run is another seed of this row."""
    return _settings(run) == _settings(row[0]) and run.config.seed not in {
        other.config.seed for other in row
    }


def _settings(run: StoredRun) -> dict[str, Any]:
    return run.config.model_dump(mode="json", exclude=set(FREE))


def _free(groups: dict[str, list[StoredRun]], run: StoredRun) -> str:
    """The method's name, else the run's folder, else that with a number, whichever is free."""
    names = (run.config.title, run.name, *(f"{run.name} ({n})" for n in range(2, len(groups) + 2)))
    return next(name for name in names if name not in groups)


def _compare_methods(
    experiment: Experiment,
    methods: Sequence[Any],
    seeds: int,
    folder: str | Path | None,
    options: CurveOptions | None,
) -> Comparison:
    groups: dict[str, list[StoredRun]] = {}
    first = experiment.config.seed
    experiments = [experiment.replace(method=method) for method in methods]
    labels = [one.label for one in experiments]
    for label in labels:
        if labels.count(label) > 1:
            raise UserError(f"methods= has '{label}' twice; give each method a name of its own")
    for one in experiments:
        one.check()  # all of them, before the first one trains
    for one in experiments:
        for seed in range(first, first + seeds):
            name = folder_name(one.label)
            path = None if folder is None else Path(folder) / name / f"seed-{seed}"
            groups.setdefault(one.label, []).append(one.replace(seed=seed).run(path).stored)
    return compare_runs(groups, options)
