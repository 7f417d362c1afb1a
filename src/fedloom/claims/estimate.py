"""How long planned runs will take on this machine, from measured rates.

The rate of a kind of run, that is of a model, data and method, comes from the rounds of a run of
that kind that has begun, finished or not. If there is none, a few steps of one round and an
evaluation are run and timed. A run that reuses the rounds of another costs only what follows
them: an epoch for every client and the scores of their models, which is a rough guess.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fedloom.core.errors import RunError
from fedloom.core.spec import Spec
from fedloom.experiment.build import resolve_auto
from fedloom.experiment.callbacks import ignore
from fedloom.experiment.prepare import prepare
from fedloom.experiment.reuse import leaves_rounds_unchanged
from fedloom.experiment.schedule import PlannedRun, sharing_last, unfinished
from fedloom.experiment.stored_run import StoredRun, gave_up, read_run
from fedloom.experiment.train import train
from fedloom.methods.registry import build as build_method
from fedloom.metrics.curve import evaluations
from fedloom.runs.folder_layout import CONFIG
from fedloom.settings.config import DEFAULTS, Config, load
from fedloom.settings.overrides import method_table, overlay

STEPS = 4  # of one client, in a first measurement, which says how many the second one takes
ROUNDS = 3  # of a measurement: the first is a warm-up, the fastest of the others counts
SECONDS = 0.5  # for a round of the second measurement
HARMLESS_LR = 1e-6  # the time does not depend on it, and nothing may diverge here
LONG = 1.0  # seconds; a first measurement that takes this long is enough
WITHOUT_EFFECT = {"seed", "rounds", "method", "checkpoint_every", "evaluate", "guard", "workers"}


@dataclass(frozen=True)
class Rate:
    """Seconds of a kind of run. personal: of what follows the last round, per run."""

    round: float
    evaluation: float
    personal: float
    source: str


@dataclass(frozen=True)
class RunEstimate:
    """A run still to do, and how long it should take. shared: it reuses the rounds of another."""

    run: PlannedRun
    seconds: float
    shared: bool
    rate: Rate


@dataclass(frozen=True)
class Estimate:
    """The runs of a plan that are still to do, in the order in which they start.

    finished: how many are done already. gave_up: how many cannot continue, because their training
    diverged.
    """

    runs: tuple[RunEstimate, ...]
    finished: int
    gave_up: int = 0

    @property
    def seconds(self) -> float:
        """Seconds of one core for all runs."""
        return sum(each.seconds for each in self.runs)

    def within(self, hours: float | None, jobs: int) -> list[RunEstimate]:
        """The first runs that are expected to be done within these hours, `jobs` at a time."""
        if hours is None:
            return list(self.runs)
        chosen, total = [], 0.0
        for each in self.runs:
            total += each.seconds / jobs
            if total > 3600 * hours:
                break
            chosen.append(each)
        return chosen


def estimate(plans: Sequence[PlannedRun]) -> Estimate:
    """How long the runs that are not finished will take."""
    rates = _Rates(plans)
    open_runs = unfinished(plans)
    todo = [planned for planned in open_runs if not gave_up(planned.path)]
    complete = {planned.path for planned in plans} - {planned.path for planned in open_runs}
    shared = _shared_rounds(plans, complete)
    return Estimate(
        tuple(_estimated(planned, planned.path in shared, rates) for planned in todo),
        len(complete),
        len(open_runs) - len(todo),
    )


def _shared_rounds(plans: Sequence[PlannedRun], complete: set[Path]) -> set[Path]:
    """The runs that will reuse the rounds of another one, which is finished or comes first."""
    first_finished = sorted(plans, key=lambda planned: planned.path not in complete)
    pairs = sharing_last(first_finished)
    return {first_finished[number].path for number, source in pairs if source >= 0}


def _estimated(planned: PlannedRun, shared: bool, rates: _Rates) -> RunEstimate:
    config, rate = planned.config, rates.of(planned.config)
    done = _rounds_done(planned.path)
    left = 0 if shared else max(0, config.rounds - done) / config.rounds
    count = len(evaluations(config.rounds, config.evaluate.every))
    seconds = left * (config.rounds * rate.round + count * rate.evaluation)
    if build_method(config.method_specs).personal:
        seconds += rate.personal
    return RunEstimate(planned, seconds, shared, rate)


def _rounds_done(path: Path) -> int:
    return len(read_run(path).history) if (path / CONFIG).exists() else 0


class _Rates:
    """The rates by kind of run, each determined once."""

    def __init__(self, plans: Sequence[PlannedRun]) -> None:
        self._known: dict[str, Rate] = {}
        for planned in plans:
            self._learn(planned)

    def of(self, config: Config) -> Rate:
        kind = _kind(config)
        if kind not in self._known:
            self._known[kind] = measure(config)
        return self._known[kind]

    def _learn(self, planned: PlannedRun) -> None:
        kind = _kind(planned.config)
        if kind in self._known or not (planned.path / CONFIG).exists():
            return
        rate = rate_of_run(read_run(planned.path))
        if rate is not None:
            self._known[kind] = rate


def _active(config: Config) -> list[Spec]:
    """The methods that change the rounds; FedAvg if none does."""
    active = [spec for spec in config.method_specs if not leaves_rounds_unchanged(spec)]
    return active or [Spec("fedavg")]


def _kind(config: Config) -> str:
    """The settings on which the time of a round depends, as text."""
    facts = config.model_dump(mode="json", exclude=WITHOUT_EFFECT)
    return json.dumps([list(map(str, _active(config))), facts], sort_keys=True)


def rate_of_run(run: StoredRun) -> Rate | None:
    """The rate of a run's own rounds; None if it has none with an evaluation."""
    timed = [record.evaluation_seconds for record in run.history if record.evaluation_seconds]
    if not timed:
        return None
    per_round = sum(record.seconds for record in run.history) / len(run.history)
    evaluation = sum(timed) / len(timed)
    clients = run.result.clients if run.result else run.config.data.clients or 1
    cohort = max(1, len(run.history[0].participants))
    personal = clients * (per_round / cohort / _epochs(run.config) + evaluation)
    return Rate(per_round, evaluation, personal, "rounds of earlier runs")


def measure(config: Config) -> Rate:
    """Time a few steps of one client, and an evaluation, with these settings."""
    first, sizes = _timed(config, STEPS)
    steps = sum(_steps(config, size) for size in sizes) / len(sizes)
    timed = [first]
    if first.step * STEPS < LONG:
        more = max(4 * STEPS, int(SECONDS / first.step))
        timed.append(_timed(config, min(more, math.ceil(steps)))[0])
    step, evaluation = (min(seconds) for seconds in zip(*timed, strict=True))
    cohort, one_epoch = _cohort(config, len(sizes)), steps / _epochs(config)
    personal = len(sizes) * (step * one_epoch + evaluation)
    return Rate(step * steps * cohort, evaluation, personal, "a few steps timed now")


class _Timing(NamedTuple):
    """Seconds of one step and of one evaluation."""

    step: float
    evaluation: float


def _timed(config: Config, steps: int) -> tuple[_Timing, list[float]]:
    """The times of one client with this number of steps per round, and the sizes of all clients."""
    with prepare(_short(config, steps)) as prepared:
        records = train(prepared, None, warn=ignore).records
        sizes = [float(size) for size in prepared.clients.sizes]
    per_step = [record.seconds / record.steps for record in records[1:] if record.steps]
    evaluation = records[-1].evaluation_seconds
    if not per_step or evaluation is None:
        raise RunError(f"the time of '{config.title}' cannot be measured: its rounds have no steps")
    return _Timing(min(per_step), evaluation), sizes


def _short(config: Config, steps: int) -> Config:
    """The settings of a run of a few steps, without what follows the rounds."""
    raw = config.model_dump(mode="json")
    changes: list[tuple[str, Any]] = [
        ("rounds", ROUNDS),
        ("train.steps", steps),
        ("evaluate.every", ROUNDS),
        ("train.lr", HARMLESS_LR),
        ("evaluate.personal", False),
        ("engine", "inprocess"),
        ("sample", {"name": "uniform", "per_round": 1}),
        ("guard.min_replies", 1),
    ]
    short = overlay({**raw, "method": method_table(_active(config))}, changes, DEFAULTS)
    return resolve_auto(load(short))


def _cohort(config: Config, clients: int) -> int:
    """Clients per round."""
    return int(config.sample.args.get("per_round", clients))


def _epochs(config: Config) -> int:
    return config.train.epochs if config.train.steps is None else 1


def _steps(config: Config, size: float) -> float:
    """Local steps of a client of this size in a round."""
    if config.train.steps is not None:
        return config.train.steps
    batches = size / config.train.batch
    whole = math.floor(batches) if config.train.drop_last else math.ceil(batches)
    return config.train.epochs * max(1, whole)


def in_words(seconds: float) -> str:
    """A duration as text.

    >>> in_words(42), in_words(330), in_words(9000)
    ('42 s', '5.5 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
