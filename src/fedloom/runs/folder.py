"""A run is a folder, and the folder is all that is needed to resume the run.

    config.toml      the format of the folder, and the complete settings the run began with
    metrics.jsonl    one line per round
    checkpoint/      round-N.safetensors and MANIFEST-N.json of the last three checkpoints
    clients.sqlite   the clients' memories; only if the method has memories
    clients/         large memories, a file each; only if there are any
    result.json      the summary of a finished run
    analysis/        what `fedloom analyze` has found; only if it was asked to
    lock             held by the process that writes
    copying          only while rounds of another run are copied into this one

A save takes these steps, each durable before the next: clients' memories, metrics, state, manifest;
then old checkpoints are deleted. A crash

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

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from fedloom.core.errors import RunError, UserError
from fedloom.core.identity import RunIdentity
from fedloom.core.regular_files import check_folder, check_regular
from fedloom.core.state import ServerState
from fedloom.runs import checkpoint
from fedloom.runs.checkpoint import LoadedCheckpoint, StateCheck, any_state
from fedloom.runs.client_store import SqliteStore
from fedloom.runs.durable_files import (
    PRIVATE_FOLDER,
    TMP_SUFFIX,
    file_error,
    read_if_exists,
    seal,
    sha256,
    sync_folder,
    unseal,
    write_durably,
)
from fedloom.runs.journal import Journal, begins_with, records
from fedloom.runs.lock import Lock
from fedloom.runs.manifest import Manifest
from fedloom.runs.memory_database import DatabaseDamaged
from fedloom.runs.memory_digest import MemoryDigest

FORMAT = 2  # of the folder; another number means that other versions of fedloom cannot read it
CONFIG = "config.toml"
METRICS = "metrics.jsonl"
CHECKPOINT = "checkpoint"
CLIENTS = "clients.sqlite"
RESULT = "result.json"
ANALYSIS = "analysis"
LOCK = "lock"
COPYING = "copying"

_HEADER = f"# fedloom run folder, format {FORMAT}\n"
_ANY_HEADER = re.compile(rb"# fedloom run folder, format (\d{1,9})\r?\n")


@dataclass(frozen=True)
class Restored:
    """The state from which a run resumes, its manifest, and warnings for the user."""

    state: ServerState
    manifest: Manifest
    warnings: list[str]

    def notes_on(self, now: RunIdentity) -> list[str]:
        """The warnings, and one for each of the user's files that has changed since."""
        edited = [
            f"'{place}' was edited after the last checkpoint: "
            "the rounds before it were run with the earlier version"
            for place in self.manifest.identity.edited(now.code)
        ]
        return [*self.warnings, *edited]


class RunFolder:
    """The folder of a run, open.

    As a context manager it closes the database and releases the lock at the end. config_text: the
    settings, without the line that names the format. config_sha256: of the whole file.
    """

    def __init__(self, path: Path, lock: Lock | None, device: torch.device | str = "cpu") -> None:
        self.path, self._lock, self._device = path, lock, device
        config = read_if_exists(path / CONFIG) or b""
        self.config_sha256 = sha256(config)
        self.config_text = _decoded(path / CONFIG, config).removeprefix(_HEADER)
        self.store = SqliteStore(path / CLIENTS, device, read_only=lock is None)
        self._journal = None if lock is None else Journal(path / METRICS)
        self._digests: dict[int, MemoryDigest] = {}  # by round, as `restore` has found them

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
        _exists(path / CHECKPOINT, check_folder)
        lock = Lock(path / LOCK)
        check_vacant(path)  # again: another process may have been faster
        write_durably(path / METRICS, b"")
        write_durably(path / CONFIG, (_HEADER + config_text).encode())
        return cls(path, lock, device)

    @classmethod
    def open(cls, path: Path, device: torch.device | str = "cpu") -> RunFolder:
        """An existing run, to resume it. No other process can write to it at the same time."""
        _check_run(path)
        return cls(path, Lock(path / LOCK), device)

    @classmethod
    def read_only(cls, path: Path, device: torch.device | str = "cpu") -> RunFolder:
        """An existing run, to read it, even while it is running. Nothing in the folder changes."""
        _check_run(path)
        return cls(path, None, device)

    def check_config(self) -> None:
        """Raise if config.toml has changed since the run began."""
        manifest = checkpoint.newest_manifest(self.path / CHECKPOINT)
        if manifest is not None and (reason := self._config_problem(manifest)) is not None:
            raise checkpoint.no_valid_checkpoint(self.path, {manifest.round: reason})

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
        self, state: ServerState, identity: RunIdentity | None = None, **extra: Any
    ) -> Manifest:
        """Write a checkpoint of everything, in the order described at the top of this module.

        identity: what the rounds so far depend on; None if only this process is known.
        """
        journal, folder = self._open_journal(), self.path / CHECKPOINT
        clients = self.store.commit(state.round).facts
        metrics = journal.sync()
        manifest = checkpoint.save(
            folder, state, self.config_sha256, clients, metrics, extra, identity
        )
        kept = checkpoint.saved_rounds(folder)[: checkpoint.KEPT_CHECKPOINTS]
        checkpoint.keep_only(folder, kept.__contains__)
        self.store.prune(min(kept))
        return manifest

    def restore(self, check_state: StateCheck = any_state) -> Restored | None:
        """Go back to the newest valid checkpoint; None if the run has none yet.

        check_state says why a state cannot be one of this run, or None. A folder that is open for
        writing is rolled back to that checkpoint as a whole. Raises, and changes nothing, if the
        run had checkpoints and they are gone.
        """
        checks = (self._config_problem, self._metrics_problem, self._clients_problem)
        lines = len(records(read_if_exists(self.path / METRICS) or b""))
        loaded = checkpoint.load_newest(self.path / CHECKPOINT, checks, self._device, check_state)
        if loaded is None and self._had_checkpoints(lines):
            raise checkpoint.checkpoints_gone(self.path, lines)
        if self._journal is None:
            self.store.read_as_of(-1 if loaded is None else loaded.manifest.round)
        else:
            self._roll_back(loaded, self._journal)
        if loaded is None:
            return None
        return Restored(loaded.state, loaded.manifest, _warnings(loaded))

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
        facts = {"format": FORMAT, "config_sha256": self.config_sha256, "summary": summary}
        write_durably(self.path / RESULT, seal(facts))

    def result(self) -> dict[str, Any] | None:
        """The result, or None if the run is not finished."""
        path = self.path / RESULT
        data = read_if_exists(path)
        if data is None:
            return None
        facts = unseal(data) or {}
        written_by = facts.get("format"), facts.get("config_sha256")
        summary = facts.get("summary")
        if written_by != (FORMAT, self.config_sha256) or not isinstance(summary, dict):
            raise RunError(
                f"{path} is damaged or belongs to other settings; "
                f"delete it, and `fedloom resume {self.path}` writes it again"
            )
        return summary

    def close(self) -> None:
        self.store.close()
        for resource in (self._journal, self._lock):
            if resource is not None:
                resource.close()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
        checkpoint.keep_only(self.path / CHECKPOINT, lambda number: number <= last)
        self.store.rollback_to(last, self._digests.get(last, MemoryDigest()))
        journal.truncate(0 if loaded is None else loaded.manifest.metrics["bytes"])
        self._end_copying()

    def _had_checkpoints(self, lines: int) -> bool:
        """Whether a run with this many lines of metrics must have had a checkpoint.

        A crash leaves at most the lines of the rounds before the first one, or copied lines.
        """
        if (self.path / COPYING).exists():
            return False
        return lines > self._first_checkpoint() or (self.path / RESULT).exists()

    def _first_checkpoint(self) -> int:
        """The round after which the run has its first checkpoint."""
        try:
            every = tomllib.loads(self.config_text).get("checkpoint_every", 1)
        except tomllib.TOMLDecodeError:
            return 1
        return every if isinstance(every, int) else 1

    def _config_problem(self, manifest: Manifest) -> str | None:
        unchanged = manifest.config_sha256 == self.config_sha256
        return None if unchanged else checkpoint.CONFIG_CHANGED

    def _metrics_problem(self, manifest: Manifest) -> str | None:
        unchanged = begins_with(read_if_exists(self.path / METRICS) or b"", manifest.metrics)
        return None if unchanged else f"{METRICS} is damaged or was edited"

    def _clients_problem(self, manifest: Manifest) -> str | None:
        try:
            digest = self.store.digest(manifest.round)
        except DatabaseDamaged as error:
            return error.reason
        self._digests[manifest.round] = digest
        if digest.facts == manifest.clients:
            return None
        return (
            f"{CLIENTS} holds {digest.count} memories "
            f"that are not the {manifest.clients['count']} of this checkpoint"
        )


def _warnings(loaded: LoadedCheckpoint) -> list[str]:
    last = loaded.manifest.round
    skipped = [
        f"the checkpoint of round {number} is skipped ({reason}); resuming from round {last}"
        for number, reason in loaded.rejected.items()
    ]
    return skipped + checkpoint.version_warnings(loaded.manifest)


def _decoded(path: Path, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not text (byte {error.start}); put it back as it was when the run began"
        ) from error


def _check_run(path: Path) -> None:
    """Raise unless the folder holds a run in the format of this version."""
    needed = {CONFIG: check_regular, CHECKPOINT: check_folder}
    missing = [name for name, check in needed.items() if not _exists(path / name, check)]
    if missing:
        raise UserError(
            f"{path} is not the folder of a run: it has no {' and no '.join(missing)}; "
            "make one with `fedloom run`"
        )
    written = _written_format(path / CONFIG)
    if written != str(FORMAT):
        raise UserError(
            f"{path} was written in run-folder format {written}, "
            f"and this version of fedloom reads format {FORMAT}; "
            "start a new run, or use the version that wrote it"
        )


def _exists(path: Path, check: Callable[[Path], bool]) -> bool:
    """Whether a file or folder of the run exists; an error if it is something else."""
    try:
        return check(path)
    except OSError as error:
        raise file_error(path, error, UserError) from error


def _written_format(config: Path) -> str:
    """The format that the first line of config.toml names."""
    header = _ANY_HEADER.match(read_if_exists(config) or b"")
    return "1 (or without a version)" if header is None else header[1].decode()


def check_vacant(path: Path) -> None:
    """Raise unless there is nothing, or only what a killed `create` has left."""
    if (path / CONFIG).exists():
        raise UserError(
            f"{path} holds a run already; "
            f"resume it with `fedloom resume {path}`, or choose another --out"
        )
    if not path.exists():
        return
    if not path.is_dir():
        raise UserError(f"{path} is a file; choose another --out")
    ours = {LOCK, METRICS, CHECKPOINT, CONFIG + TMP_SUFFIX, METRICS + TMP_SUFFIX}
    others = sorted(p.name for p in path.iterdir() if p.name not in ours)
    if others:
        raise UserError(
            f"{path} is not empty (it holds {others[0]}); choose another --out, or an empty folder"
        )
