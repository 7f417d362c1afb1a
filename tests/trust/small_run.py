"""A run of a twentieth of a second in which everything that a checkpoint can hold is in use.

SCAFFOLD gives the clients memories and the server something to share, server momentum is the
memory of a stage. Data, model and settings are prepared once for all attempts, since an attack
concerns the run folder; all the rest of `execute` is what a user would run.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from fedloom.experiment import execute as execute_module
from fedloom.experiment.build import resolve_auto
from fedloom.experiment.callbacks import Callback
from fedloom.experiment.execute import execute
from fedloom.experiment.prepare import PreparedRun, prepare
from fedloom.experiment.stored_run import read_run, run_config
from fedloom.experiment.train import Interrupted, TrainedRun
from fedloom.metrics.records import RoundRecord
from fedloom.runs.folder_layout import CONFIG
from fedloom.settings.config import Config, load
from trust.outcomes import FELL_BACK, IDENTICAL, REJECTED, WRONG

ROUNDS = 5
MEMORY = Path("/dev/shm")
SETTINGS = {
    "method": "scaffold+fedavgm",
    "model": "mlp(layers=1,width=3)",
    "data": {"name": "crowd-6", "clients": 0, "partition": "user"},
    "sample": "uniform(per_round=2)",
    "rounds": ROUNDS,
    "engine": "inprocess",
}


@dataclass(frozen=True)
class Reference:
    """What a run must end with that nobody disturbs."""

    weights: str
    lines: list[dict[str, Any]]


@cache
def settings() -> Config:
    return resolve_auto(load(SETTINGS))


@contextmanager
def workshop() -> Iterator[Path]:
    """An empty folder, in memory if there is such a disk; inside, preparing a run costs nothing."""
    torch.set_num_threads(1)
    place = MEMORY if MEMORY.is_dir() else None
    with (
        tempfile.TemporaryDirectory(prefix="fedloom-trust-", dir=place) as folder,
        patch.object(execute_module, "prepare", _prepare_once),
    ):
        yield Path(folder)


def _prepare_once(config: Config, *args: Any, **options: Any) -> Any:
    if config == settings():
        return nullcontext(_prepared())
    return prepare(config, *args, **options)


@cache
def _prepared() -> PreparedRun:
    return prepare(settings())


@cache
def reference() -> Reference:
    """The undisturbed run, in memory and in a folder: both must agree."""
    with workshop() as folder:
        trained = start(folder / "run")
        lines = metrics(folder / "run")
    assert trained.result.weights_sha256 == execute(settings()).result.weights_sha256
    return Reference(trained.result.weights_sha256, lines)


def start(path: Path, on_round: Callable[[int], None] = lambda round: None) -> TrainedRun:
    """The whole run. on_round is told what is safe."""
    return execute(settings(), path, callbacks=[_Told(on_round)])


def stopped(path: Path, after: int) -> Path:
    """The folder of a run that was stopped after a round, closed."""

    def stop() -> bool:
        done.append(1)
        return len(done) == after

    done: list[int] = []
    try:
        execute(settings(), path, stop=stop)
    except Interrupted:
        return path
    raise AssertionError("the run was not stopped")


def finished(path: Path, seed: int = 0) -> Path:
    """The folder of the finished run, or of another one like it."""
    execute(load({**SETTINGS, "seed": seed}), path)
    return path


def resume(path: Path, on_round: Callable[[int], None] = lambda round: None) -> str:
    """Do what a user would, to the end, and judge what comes out.

    Where there is no run yet, it is started. Raises what the command would print.
    """
    return verdict(path, go_on(path, on_round))


@dataclass(frozen=True)
class Ended:
    """A run that has come to its end, and what the user was told."""

    trained: TrainedRun
    warnings: list[str]


def go_on(path: Path, on_round: Callable[[int], None] = lambda round: None) -> Ended:
    """The run in a folder, resumed or started."""
    warnings: list[str] = []
    config = run_config(path) if (path / CONFIG).exists() else settings()
    trained = execute(config, path, callbacks=[_Told(on_round)], warn=warnings.append)
    return Ended(trained, warnings)


def verdict(path: Path, ended: Ended) -> str:
    """Whether a run has ended as it must.

    A run that left clients out and says so in its records is not silently wrong: nobody is left out
    of the run that was not disturbed.
    """
    if not is_right(ended.trained, path):
        named = any(record.rejected for record in ended.trained.history)
        return REJECTED if named else WRONG
    return FELL_BACK if any("is skipped" in text for text in ended.warnings) else IDENTICAL


def is_right(trained: TrainedRun, path: Path) -> bool:
    """Whether weights, records in memory and records on the disk are those of the reference."""
    wanted = reference()
    read = read_run(path)
    return (
        trained.result.weights_sha256 == wanted.weights
        and read.result is not None
        and read.result.weights_sha256 == wanted.weights
        and metrics(path) == wanted.lines
        and [timeless(record.to_json()) for record in trained.history] == wanted.lines
    )


def metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl, without what depends on the clock."""
    lines = (path / "metrics.jsonl").read_text().splitlines()
    return [timeless(json.loads(line)) for line in lines]


def timeless(line: dict[str, Any]) -> dict[str, Any]:
    """A line of the metrics without what depends on the clock."""
    return {name: value for name, value in line.items() if not name.endswith("seconds")}


def copied(base: Path, to: Path) -> Path:
    """A fresh copy of a run folder; what was there is deleted."""
    shutil.rmtree(to, ignore_errors=True)
    return Path(shutil.copytree(base, to))


class _Told(Callback):
    def __init__(self, tell: Callable[[int], None]) -> None:
        self._tell = tell

    def on_round(self, record: RoundRecord) -> None:
        self._tell(record.round)
