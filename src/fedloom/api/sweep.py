"""`fedloom.sweep` and `fedloom.tune`: an experiment with many settings, or the best ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedloom.api.experiment import Experiment, run_inputs
from fedloom.api.inputs import Inputs
from fedloom.api.lists import check_list
from fedloom.core.errors import RunError, UserError, raise_all
from fedloom.core.spec import parse
from fedloom.core.user_code import allow
from fedloom.core.whole_number import count
from fedloom.experiment.build_solver import check_varied
from fedloom.experiment.callbacks import ignore
from fedloom.experiment.execute import execute
from fedloom.experiment.prepare import check_names
from fedloom.experiment.schedule import PlannedRun, by_method, folder_name, run_all
from fedloom.experiment.stored_run import StoredRun, gave_up, read_run
from fedloom.experiment.tune import Budget, Tuned, Tuning
from fedloom.metrics.curve import CurveOptions
from fedloom.reports.comparison import Comparison
from fedloom.reports.sweep import compare_sweep
from fedloom.settings.config import DEFAULTS
from fedloom.settings.overrides import overlay
from fedloom.settings.search_space import Combination, axes, check_axes, drawn, grid, label


def sweep(
    experiment: Experiment,
    over: Mapping[str, Any],
    *,
    seeds: int = 1,
    random: int | None = None,
    folder: str | Path | None = None,
    options: CurveOptions | None = None,
) -> Comparison:
    """Run an experiment with every combination of values: a row for each, over its seeds.

    over      the values of each setting, such as {"train.lr": [0.01, 0.1]}; with `random` also
              ranges, such as {"train.lr": "0.001..0.1"}
    seeds     number of seeds, counted from the experiment's
    random    draw this many combinations instead of all
    folder    where to keep the runs; finished ones are not repeated, interrupted ones resume
    """
    found = axes(over)
    check_axes(found)
    if not found:
        raise UserError("over={} varies nothing; write for example {'train.lr': [0.01, 0.1]}")
    first, seeds = experiment.config.seed, count("seeds", seeds)
    combinations = grid(found) if random is None else drawn(found, count("random", random), first)
    inputs = _checked(experiment, combinations)
    groups: dict[str, list[StoredRun]] = {}
    for combination, changed in zip(combinations, inputs, strict=True):
        name = label(combination)
        for seed in range(first, first + seeds):
            path = None if folder is None else Path(folder) / folder_name(name) / f"seed-{seed}"
            run = _run(_with(changed, (("seed", seed),)), path)
            groups.setdefault(name, []).append(run)
    return compare_sweep(groups, [axis.setting for axis in found], options)


def tune(
    experiment: Experiment,
    methods: Sequence[str],
    folder: str | Path,
    *,
    trials: int = 20,
    over: Mapping[str, Any] | None = None,
    seeds: int = 3,
    tuning_seeds: int = 1,
) -> tuple[Comparison, list[Tuned]]:
    """Tune methods with the same budget, then compare them on the test data.

    Trials are scored on training samples that are held out, with seeds that are not reported.
    Needs Optuna: pip install "fedloom[tune]".

    methods       names of methods, tuned with the settings of the experiment
    folder        where to keep the trials; an earlier search is continued
    over          what is varied besides the methods' own parameters; default: the learning rate
    seeds         reported seeds; tuning_seeds: seeds of a trial

    Returns the comparison of the tuned methods, and for each what was tried and chosen.
    """
    check_list("methods", methods, '["fedavg", "fedprox"]')
    seeds = count("seeds", seeds)
    budget = Budget(count("trials", trials), count("tuning_seeds", tuning_seeds))
    inputs = experiment.inputs
    named = all(isinstance(method, str) for method in methods)
    if inputs.values or inputs.dataset is not None or not named:
        raise UserError(
            "tune() needs methods, a model and data that have names; "
            "store the data with fedloom data add, and write functions into a file"
        )
    allow(spec.name for method in methods for spec in parse(method))
    tuning = Tuning(inputs.raw, methods, axes(over or {}), budget, Path(folder))
    tuned = tuning.run(_run_here, ignore)
    plans = tuning.plan_reported(tuned, seeds)
    _run_here(plans)
    runs = {name: [read_run(path) for path in paths] for name, paths in by_method(plans).items()}
    return compare_sweep(runs, {axis.setting for one in tuned for axis in one.axes}), tuned


def _run_here(plans: Sequence[PlannedRun]) -> None:
    """Run what is not finished, one after the other."""

    def run_one(planned: PlannedRun) -> None:
        execute(planned.config, planned.path)

    run_all(plans, 1, run_one, ignore, forgive=gave_up)


def _with(inputs: Inputs, combination: Combination) -> Inputs:
    """With other values; code that they name was passed by the caller, so it may run."""
    changed = replace(inputs, raw=overlay(inputs.raw, combination, DEFAULTS))
    allow(changed.config.references)
    return changed


def _checked(experiment: Experiment, combinations: Sequence[Combination]) -> list[Inputs]:
    """The inputs of each combination; raises every problem of all of them."""
    problems: dict[str, None] = {}
    result = []
    for combination in combinations:
        try:
            inputs = _with(experiment.inputs, combination)
            method = check_names(inputs.config, inputs.values)
            check_varied(dict(combination), inputs.config.train, method)
            result.append(inputs)
        except UserError as error:
            problems[str(error)] = None
    raise_all(problems, "over")
    return result


def _run(inputs: Inputs, path: Path | None) -> StoredRun:
    """A run; one that gave up is returned as far as it came, if it has a folder."""
    if path is not None and gave_up(path):
        return read_run(path)
    try:
        return run_inputs(inputs, path).stored
    except RunError:
        if path is None or not gave_up(path):
            raise
        return read_run(path)
