"""A run as its folder holds it: settings, history and result as typed records."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedloom.core.identity import RunIdentity
from fedloom.metrics.records import History, RoundRecord, RunResult
from fedloom.runs.folder import CONFIG, RunFolder
from fedloom.settings.config import Config, load_file


@dataclass(frozen=True)
class StoredRun:
    """What is known of a run, finished or not.

    path: None for a run that was kept in memory. identity: what it depends on besides the settings;
    None before the first checkpoint.
    """

    config: Config
    history: History
    result: RunResult | None
    path: Path | None = None
    identity: RunIdentity | None = None

    @property
    def name(self) -> str:
        """The folder, or the method and seed of a run in memory."""
        return str(self.path) if self.path else f"{self.config.title} seed {self.config.seed}"


def run_config(path: Path) -> Config:
    """The settings that a run began with; raises if they were edited since."""
    with RunFolder.read_only(path) as folder:
        folder.check_config()
    return load_file(path / CONFIG)


def read_run(path: Path) -> StoredRun:
    """The run in a folder, which another process may be writing at the same time."""
    with RunFolder.read_only(path) as folder:
        history, result = read_history(folder), read_result(folder)
        identity = folder.identity() if result is None else result.identity
    return StoredRun(load_file(path / CONFIG), history, result, path, identity)


def read_history(folder: RunFolder) -> History:
    """The records of the rounds so far."""
    return History([RoundRecord.from_json(line) for line in folder.metrics()])


def read_result(folder: RunFolder) -> RunResult | None:
    """The summary of a finished run; None if it is not finished."""
    facts = folder.result()
    return None if facts is None else RunResult.from_json(facts)


def is_finished(path: Path) -> bool:
    """Whether the run in a folder has reached its last round."""
    with RunFolder.read_only(path) as folder:
        return folder.result() is not None
