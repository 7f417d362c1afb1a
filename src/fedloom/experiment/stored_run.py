"""A run as its folder holds it: settings, history and result as typed records."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fedloom.core.errors import RunError
from fedloom.core.identity import RunIdentity
from fedloom.metrics.history import History
from fedloom.metrics.records import RoundRecord, RunResult
from fedloom.runs.folder import RunFolder
from fedloom.runs.folder_layout import CONFIG, METRICS, RESULT
from fedloom.settings.config import Config, load_file

if TYPE_CHECKING:
    from fedloom.data.dataset import Dataset


@dataclass(frozen=True)
class StoredRun:
    """What is known of a run, finished or not.

    path: None for a run that was kept in memory. identity: what it depends on besides the settings;
    None before the first checkpoint. dataset: what was passed as a Python object in this session,
    which no name leads to.
    """

    config: Config
    history: History
    result: RunResult | None
    path: Path | None = None
    identity: RunIdentity | None = None
    dataset: Dataset | None = field(default=None, repr=False, compare=False)

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
        # the result first: its process has written all lines before it
        result, history = read_result(folder), read_history(folder)
        identity = folder.identity() if result is None else result.identity
    config = load_file(path / CONFIG)
    if result is not None and (found := _contradiction(result, history, config)) is not None:
        field, file = found
        raise RunError(
            f"{path / RESULT} and {path / file} contradict each other in '{field}'; delete "
            f"the result, and `fedloom resume {path}` writes it again"
        )
    return StoredRun(config, history, result, path, identity)


def read_history(folder: RunFolder, rounds: int | None = None) -> History:
    """The records of the rounds so far. rounds: how many there must be, if that is known.

    Raises RunError if a line is not the record of its round.
    """
    place = folder.path / METRICS
    records = []
    for number, facts in enumerate(folder.metrics(), 1):
        record = RoundRecord.from_json(facts, f"{place}, line {number},")
        if record.round != number:
            raise RunError(
                f"{place}, line {number}, is the record of round {record.round}; "
                "restore the file from a copy"
            )
        records.append(record)
    if rounds is not None and len(records) != rounds:
        raise RunError(
            f"{place} has {len(records)} readable lines, and the checkpoint is that of "
            f"round {rounds}; restore the file from a copy"
        )
    return History(records)


def read_result(folder: RunFolder) -> RunResult | None:
    """The summary of a finished run; None if it is not finished."""
    facts = folder.result()
    return None if facts is None else RunResult.from_json(facts, str(folder.path / RESULT))


def _contradiction(result: RunResult, history: History, config: Config) -> tuple[str, str] | None:
    """The first field of a result that does not fit, and the file that says otherwise."""
    evaluated = [record for record in history if record.accuracy is not None]
    if not evaluated or result.rounds != len(history):
        return "rounds", METRICS
    from_rounds = {
        "accuracy": evaluated[-1].accuracy,
        "test_loss": evaluated[-1].test_loss,
        "rejected": sum(len(record.rejected) for record in history),
        "bytes_up": history.total("bytes_up"),
        "bytes_down": history.total("bytes_down"),
    }
    from_settings = {
        "method": config.title,
        "seed": config.seed,
        "model": config.model.name,
        "data": config.data.name,
    }
    for file, facts in ((METRICS, from_rounds), (CONFIG, from_settings)):
        for name, value in facts.items():
            if getattr(result, name) != value:
                return name, file
    return None


def is_finished(path: Path) -> bool:
    """Whether the run in a folder has reached its last round."""
    with RunFolder.read_only(path) as folder:
        return folder.result() is not None


def gave_up(path: Path) -> bool:
    """Whether a run can get no further: more rounds in a row were skipped than its guard allows,
    or all of them. This is how training that diverges ends."""
    if not (path / CONFIG).exists():
        return False
    run = read_run(path)
    in_a_row = most = 0
    for record in run.history:
        in_a_row = 0 if record.skipped is None else in_a_row + 1
        most = max(most, in_a_row)
    return most > run.config.guard.max_skipped or most == run.config.rounds
