"""Many runs: planned and checked before the first one begins, each in a folder of its own.

A schedule that was interrupted continues where it stopped, because runs that are finished are
skipped and runs that have begun are resumed. A run whose rounds another finished run shares takes
them over (experiment/reuse.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedloom.core.child_process import module_command
from fedloom.core.errors import RunError, UserError, raise_all
from fedloom.core.spec import parse
from fedloom.core.user_code import is_allowed
from fedloom.experiment.build import resolve_auto, server_device
from fedloom.experiment.build_solver import check_varied
from fedloom.experiment.identity import CurrentData, check_same_data, stored_identity
from fedloom.experiment.job_memory import MemoryGate
from fedloom.experiment.open_engine import resume_config
from fedloom.experiment.prepare import check_names, cohort_conflicts
from fedloom.experiment.reuse import copy_rounds, find_run_with_same_rounds, rounds_key
from fedloom.experiment.stored_run import is_finished, run_config
from fedloom.metrics.curve import CurveOptions, evaluations
from fedloom.runs.folder import RunFolder, remove_unless_begun
from fedloom.runs.folder_layout import CONFIG
from fedloom.settings.config import DEFAULTS, Config, load
from fedloom.settings.difference import first_difference
from fedloom.settings.overrides import overlay
from fedloom.settings.search_space import Combination, label

Message = Callable[[str], None]
MAX_FOLDER_NAME = 120  # characters; file systems allow 255 bytes
REFUSED = 2  # the exit code of a run with settings or data that cannot be used


@dataclass(frozen=True)
class PlannedRun:
    """One run of a schedule: a method and a seed, and in a paper's table a column."""

    method: str
    seed: int
    path: Path
    config: Config
    column: str = ""

    @property
    def title(self) -> str:
        return " ".join(filter(None, (self.method, self.column, f"seed {self.seed}")))

    def open(self) -> RunFolder:
        """The folder of the run: the existing one, or a new one."""
        device = server_device(self.config)
        if (self.path / CONFIG).exists():
            return RunFolder.open(self.path, device)
        return RunFolder.create(self.path, self.config.text(), device)


def check_methods(methods: Sequence[str]) -> None:
    """Raise unless there is a method, and none of them twice."""
    if not methods:
        raise UserError(
            "--methods names no method; write for example --methods fedavg,fedprox "
            "(see: fedloom methods)"
        )
    if len({repr(parse(m)) for m in methods}) < len(methods):
        raise UserError(f"--methods {','.join(methods)} names a method twice; name each once")


def plan_methods(
    raw: Mapping[str, Any], methods: Sequence[str], seeds: int, folder: Path
) -> list[PlannedRun]:
    """A run for each method and seed, every one checked before the first begins."""
    check_methods(methods)
    plans, data = [], CurrentData()
    for method in methods:
        settings = overlay(raw, [("method", method)], DEFAULTS)
        plans += plan_seeds(method, settings, seeds, folder / folder_name(method), data)
    return plans


def plan_sweep(
    raw: Mapping[str, Any], combinations: Sequence[Combination], seeds: int, folder: Path
) -> list[PlannedRun]:
    """A run for each combination of settings and seed.

    All of them are checked before the first begins, and every problem is reported at once.
    """
    plans, problems, data = [], dict[str, None](), CurrentData()
    for combination in combinations:
        name = label(combination)
        try:
            settings = overlay(raw, combination, DEFAULTS)
            config = load(settings)
            check_varied(dict(combination), config.train, check_names(config))
            plans += plan_seeds(name, settings, seeds, folder / folder_name(name), data)
        except UserError as error:
            problems[str(error)] = None
    raise_all(problems, "--over")
    return plans


def plan_seeds(
    method: str,
    raw: Mapping[str, Any],
    seeds: int,
    folder: Path,
    data: CurrentData,
    column: str = "",
) -> list[PlannedRun]:
    """One checked run per seed, counted from the seed of the settings.

    data: to compare with those of runs that exist.
    """
    first = load(raw)
    check_names(first)
    if first.data.clients:  # else the data say how many there are
        raise_all(cohort_conflicts(first, first.data.clients), "settings")
    plans = []
    for seed in range(first.seed, first.seed + seeds):
        config = resolve_auto(load(overlay(raw, [("seed", seed)], DEFAULTS)))
        plans.append(PlannedRun(method, seed, folder / f"seed-{seed}", config, column))
    for planned in plans:
        _check_existing(planned, data)
    return plans


def _check_existing(planned: PlannedRun, data: CurrentData) -> None:
    """A folder that exists must hold a run with these settings, and data and code as they are."""
    if not (planned.path / CONFIG).exists():
        return
    remedy = "choose another --out, or delete that folder"
    difference = first_difference(resolve_auto(run_config(planned.path)), planned.config)
    if difference is not None:
        raise UserError(f"'{planned.path}' holds a run with other settings: {difference}; {remedy}")
    identity = stored_identity(planned.path)
    if identity is None:
        return
    for place in identity.edited(planned.config.code()):
        raise UserError(
            f"'{planned.path}' holds a run of an earlier version of '{place}'; {remedy}"
        )
    check_same_data(str(planned.path), identity, data.used_by(planned.config), remedy)


def folder_name(method: str) -> str:
    """A method, or settings, as the name of a folder; a long one ends with its checksum."""
    name = "".join(c if c.isalnum() or c in "-+=.," else "_" for c in method)
    if len(name) <= MAX_FOLDER_NAME:
        return name
    return f"{name[:MAX_FOLDER_NAME]}-{hashlib.sha256(method.encode()).hexdigest()[:8]}"


def check_options(plans: Sequence[PlannedRun], options: CurveOptions) -> None:
    """Raise, before the first run begins, for rounds that its curve will not have."""
    for config in (planned.config for planned in plans):
        options.at_rounds(dict.fromkeys(evaluations(config.rounds, config.evaluate.every), 0.0))


def by_method(plans: Sequence[PlannedRun]) -> dict[str, list[Path]]:
    """The folders of each method's runs."""
    groups: dict[str, list[Path]] = {}
    for planned in plans:
        groups.setdefault(planned.method, []).append(planned.path)
    return groups


def unfinished(plans: Sequence[PlannedRun]) -> list[PlannedRun]:
    """The runs that have not reached their last round."""
    return [p for p in plans if not (p.path / CONFIG).exists() or not is_finished(p.path)]


def run_all(
    plans: Sequence[PlannedRun],
    jobs: int,
    run_one: Callable[[PlannedRun], None],
    say: Message,
    options: Sequence[str] = (),
    memory: int | None = None,
    forgive: Callable[[Path], bool] = lambda path: False,
) -> None:
    """Finish every run that is not finished.

    jobs: runs at a time. One at a time, `run_one` is called for each in this process; several at a
    time are processes of their own, each of which resumes its folder, with these options. memory:
    bytes that they may take together. forgive: whether a run that has failed, in this folder, may
    stay as it is.
    """
    todo = [planned for planned in unfinished(plans) if not forgive(planned.path)]
    if not todo:
        return
    say(f"{len(todo)} of {len(plans)} runs to do, {jobs} at a time")
    folders = [planned.path for planned in plans]
    if jobs > 1:
        failed = _run_in_processes(todo, folders, jobs, MemoryGate(memory), say, options)
        _raise_failed([planned for planned in failed if not forgive(planned.path)])
        return
    for planned in todo:
        _take_over_rounds(planned, folders, say)
        try:
            run_one(planned)
        except RunError as error:
            if not forgive(planned.path):
                raise
            say(f"{planned.title}: {error}")


def _raise_failed(failed: Sequence[PlannedRun]) -> None:
    if failed:
        raise RunError(
            f"{len(failed)} runs did not finish, the first in '{failed[0].path}'; "
            "repeat the command to continue"
        )


def _take_over_rounds(planned: PlannedRun, folders: Sequence[Path], say: Message) -> None:
    """Give a run that has not begun the rounds of a finished run with the same rounds, if any."""
    if _has_begun(planned):
        return
    other = find_run_with_same_rounds(planned.config, folders)
    if other is not None:
        with planned.open() as folder:
            copy_rounds(folder, other)
        say(f"{planned.title}: has the same rounds as '{other}', which are reused")


def _has_begun(planned: PlannedRun) -> bool:
    if not (planned.path / CONFIG).exists():
        return False
    with planned.open() as folder:
        return folder.restore() is not None


def _run_in_processes(
    plans: Sequence[PlannedRun],
    folders: Sequence[Path],
    jobs: int,
    gate: MemoryGate,
    say: Message,
    options: Sequence[str],
) -> list[PlannedRun]:
    """Run each in a process of its own; those that failed."""

    def run(planned: PlannedRun, source: Future[int] | None) -> int:
        if source is not None:
            wait([source])
        _take_over_rounds(planned, folders, say)
        command = module_command("fedloom", "resume", str(planned.path), *options)
        if resume_config(planned.config, planned.path).engine == "auto":
            command += ["--engine", "inprocess"]  # the cores are taken by the other runs
        if _may_run_its_code(planned.config):
            command.append("--trust")
        return gate.run(command, planned.config)

    new = [planned.path for planned in plans if not (planned.path / CONFIG).exists()]
    for planned in plans:
        planned.open().close()
    pool = ThreadPoolExecutor(jobs)
    started: dict[int, Future[int]] = {}
    try:
        for number, source in sharing_last(plans):
            started[number] = pool.submit(run, plans[number], started.get(source))
        codes = [started[number].result() for number in range(len(plans))]
    finally:
        gate.close()
        pool.shutdown(cancel_futures=True)
    for planned, code in zip(plans, codes, strict=True):
        if code == REFUSED and planned.path in new:
            remove_unless_begun(planned.path)
    return [planned for planned, code in zip(plans, codes, strict=True) if code]


def sharing_last(plans: Sequence[PlannedRun]) -> list[tuple[int, int]]:
    """The order in which to start runs: those that can reuse the rounds of an earlier one last.

    Pairs of a run and the one whose rounds it reuses, or -1, both as their place in `plans`.
    """
    first_with: dict[str, int] = {}
    sources = []
    for number, planned in enumerate(plans):
        key = rounds_key(planned.config)
        source = number if key is None else first_with.setdefault(key, number)
        sources.append((number, -1 if source == number else source))
    return sorted(sources, key=lambda pair: pair[1] >= 0)


def _may_run_its_code(config: Config) -> bool:
    """Whether a run uses user code, all of which this process may run."""
    return bool(config.references) and all(map(is_allowed, config.references))
