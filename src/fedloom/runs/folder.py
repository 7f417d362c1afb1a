"""A run is a folder, and to go on with it nothing else is needed.

    config.toml      the settings, complete, as the run began with them
    metrics.jsonl    a line a round
    checkpoint/      round-N.safetensors and MANIFEST-N.json, the last three
    clients.sqlite   what the clients remember; only if a method has such memories
    result.json      the summary of a finished run
    lock             held by the process that writes

A save goes in this order, each step durable before the next: clients' memories, metrics, state, manifest; then what is too
old is deleted. A crash

    before the manifest   leaves memories and lines of a round that no manifest knows: `restore` goes back to the last manifest,
                          drops the later versions of the memories and the later lines. A state without manifest is ignored.
    after the manifest    leaves old versions and old checkpoints lying about; the next save deletes them.
    in the middle of one  is the business of SQLite for the memories (a transaction) and of a rename for the files. A line of
                          the metrics may be torn: it lies behind what the manifest vouches for.
    during `restore`      finds the manifest in force untouched, for only what is newer than it is deleted; it starts over.

So what is restored is always a save that was completed, and the last one unless its files were damaged later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from fedloom.core.errors import RunError, UserError
from fedloom.core.state import ServerState
from fedloom.runs import checkpoint
from fedloom.runs.checkpoint import Found, Manifest
from fedloom.runs.client_store import Damaged, SqliteStore, Stock
from fedloom.runs.durable_files import BESIDE, failed, read, seal, sha256, sync_folder, unseal, write_durably
from fedloom.runs.journal import Journal, begins_with, records
from fedloom.runs.lock import Lock

CONFIG = "config.toml"
METRICS = "metrics.jsonl"
CHECKPOINT = "checkpoint"
CLIENTS = "clients.sqlite"
RESULT = "result.json"
LOCK = "lock"


@dataclass(frozen=True)
class Restored:
    """Where a run goes on: the state, the manifest that vouches for it, and what the user should know."""

    state: ServerState
    manifest: Manifest
    warnings: list[str]


class RunFolder:
    """The folder of a run, open. As a context manager it is closed at the end, and with it the lock and the database."""

    def __init__(self, path: Path, lock: Lock | None, device: torch.device | str = "cpu") -> None:
        self.path, self._lock, self._device = path, lock, device
        config = read(path / CONFIG) or b""
        self.config_sha256 = sha256(config)
        self.config_text = _decoded(path / CONFIG, config)
        self.store = SqliteStore(path / CLIENTS, device, read_only=lock is None)
        self._journal = None if lock is None else Journal(path / METRICS)
        self._stocks: dict[int, Stock] = {}

    @classmethod
    def create(cls, path: Path, config_text: str, device: torch.device | str = "cpu") -> RunFolder:
        """A new run. config.toml is written last: it makes the folder a run."""
        _check_vacant(path)
        try:
            (path / CHECKPOINT).mkdir(parents=True, exist_ok=True)
            sync_folder(path.parent)
        except OSError as error:
            raise failed(path, error, UserError) from error
        lock = Lock(path / LOCK)
        _check_vacant(path)  # again: another process may have been faster
        write_durably(path / METRICS, b"")
        write_durably(path / CONFIG, config_text.encode())
        return cls(path, lock, device)

    @classmethod
    def open(cls, path: Path, device: torch.device | str = "cpu") -> RunFolder:
        """A run that is there, to go on with; no other process can at the same time."""
        _check_run(path)
        return cls(path, Lock(path / LOCK), device)

    @classmethod
    def read_only(cls, path: Path, device: torch.device | str = "cpu") -> RunFolder:
        """A run to look at, even while it goes on elsewhere. Nothing in the folder changes."""
        _check_run(path)
        return cls(path, None, device)

    def check_config(self) -> None:
        """Refuse settings that are not those the run began with, before anybody interprets them."""
        manifest = checkpoint.newest(self.path / CHECKPOINT)
        if manifest is not None and (why := self._other_config(manifest)) is not None:
            raise checkpoint.none_left(self.path, {manifest.round: why})

    def edited(self, code: Mapping[str, str]) -> list[str]:
        """The user's own files among these that are not those with which the run came to its last checkpoint."""
        manifest = checkpoint.newest(self.path / CHECKPOINT)
        then = manifest.extra.get("code", {}) if manifest is not None else {}
        return [place for place, now in code.items() if then.get(place, now) != now]

    def append_metrics(self, line: Mapping[str, Any]) -> None:
        """One more line; it outlives this process at once, and a power cut after the next save."""
        self._writer().append(line)

    def metrics(self) -> list[dict[str, Any]]:
        """The lines so far, one a round. Those behind the last checkpoint are provisional: a resumed run makes them again."""
        # the manifest first: a run that goes on elsewhere only adds to the lines that it vouches for
        manifest = checkpoint.newest(self.path / CHECKPOINT) if self._lock is None else None
        data = read(self.path / METRICS) or b""
        if manifest is not None and not begins_with(data, manifest.metrics):
            raise RunError(f"{self.path / METRICS} is damaged or was edited; `fedloom resume {self.path}` repairs what can be")
        return records(data)

    def save(self, state: ServerState, **extra: Any) -> Manifest:
        """A checkpoint of everything, in the order of this module's first lines."""
        journal, folder = self._writer(), self.path / CHECKPOINT
        clients = self.store.commit(state.round).facts
        manifest = checkpoint.save(folder, state, self.config_sha256, clients, journal.sync(), extra)
        kept = checkpoint.rounds(folder)[: checkpoint.KEEP]
        checkpoint.keep_only(folder, kept.__contains__)
        self.store.prune(min(kept))
        return manifest

    def restore(self) -> Restored | None:
        """Go back to the newest sound checkpoint, and the whole folder with it; None if the run has none yet."""
        checks = (self._other_config, self._other_metrics, self._other_clients)
        found = checkpoint.latest(self.path / CHECKPOINT, checks, self._device)
        if self._journal is None:
            self.store.look_back(found.manifest.round if found else -1)
        else:
            self._go_back(found, self._journal)
        return None if found is None else Restored(found.state, found.manifest, _warnings(found))

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write down how it ended."""
        self._writer()
        write_durably(self.path / RESULT, seal({"config_sha256": self.config_sha256, "summary": summary}))

    def result(self) -> dict[str, Any] | None:
        """How it ended, or None if it has not."""
        path = self.path / RESULT
        data = read(path)
        facts = unseal(data)
        if data is not None and (facts is None or facts.get("config_sha256") != self.config_sha256):
            raise RunError(
                f"{path} is damaged or belongs to other settings; delete it, and `fedloom resume {self.path}` writes it anew"
            )
        return None if facts is None else dict(facts["summary"])

    def close(self) -> None:
        self.store.close()
        for held in (self._journal, self._lock):
            if held is not None:
                held.close()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _writer(self) -> Journal:
        if self._journal is None:
            raise RunError(f"{self.path} was opened for reading; open it with RunFolder.open to write")
        return self._journal

    def _go_back(self, found: Found | None, journal: Journal) -> None:
        last = found.manifest.round if found else -1
        checkpoint.keep_only(self.path / CHECKPOINT, lambda number: number <= last)
        self.store.rollback_to(last, self._stocks.get(last, Stock()))
        journal.cut(found.manifest.metrics["bytes"] if found else 0)

    def _other_config(self, manifest: Manifest) -> str | None:
        return None if manifest.config_sha256 == self.config_sha256 else checkpoint.EDITED

    def _other_metrics(self, manifest: Manifest) -> str | None:
        fits = begins_with(read(self.path / METRICS) or b"", manifest.metrics)
        return None if fits else f"{METRICS} is damaged or was edited"

    def _other_clients(self, manifest: Manifest) -> str | None:
        try:
            self._stocks[manifest.round] = found = self.store.stock(manifest.round)
        except Damaged as error:
            return error.what
        if found.facts == manifest.clients:
            return None
        return f"{CLIENTS} holds {found.count} memories that are not the {manifest.clients['count']} of this checkpoint"


def _warnings(found: Found) -> list[str]:
    last = found.manifest.round
    skipped = [f"the checkpoint of round {r} is left out ({why}); going on from round {last}" for r, why in found.refused.items()]
    return skipped + checkpoint.differences(found.manifest)


def _decoded(path: Path, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not text (byte {error.start}); put it back as it was when the run began") from error


def _check_run(path: Path) -> None:
    missing = [name for name in (CONFIG, CHECKPOINT) if not (path / name).exists()]
    if missing:
        raise UserError(f"{path} is not the folder of a run: it has no {' and no '.join(missing)}; make one with `fedloom run`")


def _check_vacant(path: Path) -> None:
    """Nothing there, or what a `create` that was killed has left."""
    if (path / CONFIG).exists():
        raise UserError(f"{path} holds a run already; go on with `fedloom resume {path}`, or choose another --out")
    if path.exists() and not path.is_dir():
        raise UserError(f"{path} is a file; choose another --out")
    ours = {LOCK, METRICS, CHECKPOINT, CONFIG + BESIDE, METRICS + BESIDE}
    others = sorted(p.name for p in path.iterdir() if p.name not in ours) if path.exists() else []
    if others:
        raise UserError(f"{path} is not empty (it holds {others[0]}); choose another --out, or an empty folder")
