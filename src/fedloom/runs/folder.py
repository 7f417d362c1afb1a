"""A run is a folder, and the folder is all that is needed to resume the run.

What it holds is listed in runs/folder_layout.py.

A save takes these steps, each durable before the next: clients' memories, metrics, the frozen
weights if they are not there yet, state, manifest; then old checkpoints are deleted. A crash

    before the manifest   leaves memories and metrics of a round without a manifest: `restore` goes
                          back to the last manifest and drops later versions of the memories and
                          later lines. A state without a manifest is ignored.
    after the manifest    leaves old versions and old checkpoints; the next save deletes them.
    during one step       is handled by SQLite for the memories (a transaction) and by a rename for
                          the files. A line of the metrics may be torn: it lies after the part that
                          the manifest covers.
    during `restore`      leaves the manifest that is restored intact, since only what is newer is
                          deleted; `restore` can start over.

So `restore` always returns a completed save, and the last one unless its files were damaged later.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from fedloom.core.errors import RunError, UserError
from fedloom.core.identity import RunIdentity
from fedloom.core.regular_files import check_folder
from fedloom.core.state import ServerState
from fedloom.runs import checkpoint, frozen_weights
from fedloom.runs.checkpoint import LoadedCheckpoint, StateCheck, any_state
from fedloom.runs.checkpoint_errors import checkpoints_gone, no_valid_checkpoint
from fedloom.runs.checkpoint_files import KEPT_CHECKPOINTS, keep_only, saved_rounds
from fedloom.runs.client_store import SqliteStore
from fedloom.runs.durable_files import (
    PRIVATE_FOLDER,
    file_error,
    read_if_exists,
    sha256,
    sync_folder,
    write_durably,
)
from fedloom.runs.folder_checks import FolderChecks, had_checkpoints
from fedloom.runs.folder_layout import (
    CHECKPOINT,
    CLIENTS,
    CONFIG,
    COPYING,
    LOCK,
    METRICS,
    RESULT,
    check_run,
    check_vacant,
    is_there,
    with_header,
    without_header,
)
from fedloom.runs.frozen_weights import StoredWeights
from fedloom.runs.journal import Journal, begins_with, records
from fedloom.runs.lock import Lock
from fedloom.runs.manifest import Manifest
from fedloom.runs.memory_digest import MemoryDigest
from fedloom.runs.restored import Restored
from fedloom.runs.result_file import read_result, write_result


class RunFolder:
    """The folder of a run, open.

    As a context manager it closes the database and releases the lock at the end. config_text: the
    settings, without the line that names the format. config_sha256: of the whole file.
    """

    def __init__(self, path: Path, lock: Lock | None, device: torch.device | str = "cpu") -> None:
        self.path, self._lock, self._device = path, lock, device
        config = read_if_exists(path / CONFIG) or b""
        self.config_sha256 = sha256(config)
        self.config_text = without_header(path / CONFIG, config)
        self.store = SqliteStore(path / CLIENTS, device, read_only=lock is None)
        self._journal = None if lock is None else Journal(path / METRICS)
        self._checks = FolderChecks(path, self.config_sha256, self.store)
        self._frozen: StoredWeights | None = None  # once this process has stored them

    @classmethod
    def create(cls, path: Path, config_text: str, device: torch.device | str = "cpu") -> RunFolder:
        """A new run. config.toml is written last: it makes the folder a run."""
        check_vacant(path)
        try:
            path.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)  # the mode is of the last one
            (path / CHECKPOINT).mkdir(PRIVATE_FOLDER, exist_ok=True)
            sync_folder(path.parent)
        except OSError as error:
            raise file_error(path, error, UserError) from error
        is_there(path / CHECKPOINT, check_folder)
        lock = Lock(path / LOCK)
        check_vacant(path)  # again: another process may have been faster
        write_durably(path / METRICS, b"")
        write_durably(path / CONFIG, with_header(config_text))
        return cls(path, lock, device)

    @classmethod
    def open(cls, path: Path, device: torch.device | str = "cpu") -> RunFolder:
        """An existing run, to resume it. No other process can write to it at the same time."""
        check_run(path)
        return cls(path, Lock(path / LOCK), device)

    @classmethod
    def read_only(cls, path: Path, device: torch.device | str = "cpu") -> RunFolder:
        """An existing run, to read it, even while it is running. Nothing in the folder changes."""
        check_run(path)
        return cls(path, None, device)

    def check_config(self) -> None:
        """Raise if config.toml has changed since the run began."""
        manifest = checkpoint.newest_manifest(self.path / CHECKPOINT)
        if manifest is not None and (reason := self._checks.config_problem(manifest)) is not None:
            raise no_valid_checkpoint(self.path, {manifest.round: reason})

    def identity(self) -> RunIdentity | None:
        """What the rounds of the last checkpoint depend on; None if there is none."""
        manifest = checkpoint.newest_manifest(self.path / CHECKPOINT)
        return None if manifest is None else manifest.identity

    def append_metrics(self, line: Mapping[str, Any]) -> None:
        """Add one line. It survives this process at once, and a power cut after the next save."""
        self._open_journal().append(line)

    def metrics(self) -> list[dict[str, Any]]:
        """The lines so far, one per round.

        Those after the last checkpoint are provisional: a resumed run writes them again.
        """
        # the manifest first: a process that runs meanwhile only appends to the lines it covers
        manifest = None
        if self._lock is None:
            manifest = checkpoint.newest_manifest(self.path / CHECKPOINT)
        data = read_if_exists(self.path / METRICS) or b""
        if manifest is not None and not begins_with(data, manifest.metrics):
            raise RunError(
                f"{self.path / METRICS} is damaged or was edited; "
                f"`fedloom resume {self.path}` repairs what it can"
            )
        return records(data)

    def save(
        self,
        state: ServerState,
        identity: RunIdentity | None = None,
        frozen: Collection[str] = (),
        **extra: Any,
    ) -> Manifest:
        """Write a checkpoint of everything, in the order described at the top of this module.

        identity: what the rounds so far depend on; None if only this process is known. frozen: the
        weights of the model that never change.
        """
        journal, folder = self._open_journal(), self.path / CHECKPOINT
        clients = self.store.commit(state.round).facts
        metrics = journal.sync()
        if self._frozen is None:
            self._frozen = frozen_weights.store(folder, state.params, frozen)
        manifest = checkpoint.save(
            folder, state, self.config_sha256, clients, metrics, extra, identity, self._frozen
        )
        kept = saved_rounds(folder)[:KEPT_CHECKPOINTS]
        keep_only(folder, kept.__contains__)
        self.store.prune(min(kept))
        return manifest

    def restore(self, check_state: StateCheck = any_state) -> Restored | None:
        """Go back to the newest valid checkpoint; None if the run has none yet.

        check_state says why a state cannot be one of this run, or None. A folder that is open for
        writing is rolled back to that checkpoint as a whole. Raises, and changes nothing, if the
        run had checkpoints and they are gone.
        """
        lines = len(records(read_if_exists(self.path / METRICS) or b""))
        loaded = checkpoint.load_newest(
            self.path / CHECKPOINT, self._checks.problem, self._device, check_state
        )
        if loaded is None and had_checkpoints(self.path, self.config_text, lines):
            raise checkpoints_gone(self.path, lines)
        if self._journal is None:
            self.store.read_as_of(-1 if loaded is None else loaded.manifest.round)
        else:
            self._roll_back(loaded, self._journal)
        return None if loaded is None else Restored.from_checkpoint(loaded)

    @contextmanager
    def copying_rounds(self) -> Iterator[None]:
        """For copying the lines and memories of another run, and the checkpoint that follows."""
        write_durably(self.path / COPYING, b"")
        yield
        self._end_copying()

    def _end_copying(self) -> None:
        try:
            (self.path / COPYING).unlink(missing_ok=True)
        except OSError as error:
            raise file_error(self.path / COPYING, error) from error

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write the result."""
        self._open_journal()  # raises if the folder is open for reading only
        write_result(self.path / RESULT, summary, self.config_sha256)

    def result(self) -> dict[str, Any] | None:
        """The result, or None if the run is not finished."""
        return read_result(self.path / RESULT, self.config_sha256)

    def close(self) -> None:
        self.store.close()
        for resource in (self._journal, self._lock):
            if resource is not None:
                resource.close()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _open_journal(self) -> Journal:
        if self._journal is None:
            raise RunError(
                f"{self.path} was opened for reading; open it with RunFolder.open to write"
            )
        return self._journal

    def _roll_back(self, loaded: LoadedCheckpoint | None, journal: Journal) -> None:
        """Delete everything newer than the checkpoint."""
        last = -1 if loaded is None else loaded.manifest.round
        keep_only(self.path / CHECKPOINT, lambda number: number <= last)
        self.store.rollback_to(last, self._checks.digests.get(last, MemoryDigest()))
        journal.truncate(0 if loaded is None else loaded.manifest.metrics["bytes"])
        self._end_copying()


def remove_unless_begun(path: Path) -> None:
    """Delete the folder of a run that has not saved anything yet."""
    if not read_if_exists(path / METRICS) and not saved_rounds(path / CHECKPOINT):
        shutil.rmtree(path, ignore_errors=True)
