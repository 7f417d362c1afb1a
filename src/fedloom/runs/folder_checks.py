"""Whether a run folder still fits its checkpoints: settings, metrics and the clients' memories."""

from __future__ import annotations

import tomllib
from pathlib import Path

from fedloom.runs.checkpoint_errors import CONFIG_CHANGED
from fedloom.runs.client_store import SqliteStore
from fedloom.runs.durable_files import read_if_exists
from fedloom.runs.folder_layout import CLIENTS, COPYING, METRICS, RESULT
from fedloom.runs.journal import begins_with
from fedloom.runs.manifest import Manifest
from fedloom.runs.memory_database import DatabaseDamaged
from fedloom.runs.memory_digest import MemoryDigest


class FolderChecks:
    """Compares a run folder with the manifests of its checkpoints.

    digests: of the clients' memories by round, as far as they were compared.
    """

    def __init__(self, path: Path, config_sha256: str, store: SqliteStore) -> None:
        self.path, self.config_sha256, self.store = path, config_sha256, store
        self.digests: dict[int, MemoryDigest] = {}

    def problem(self, manifest: Manifest) -> str | None:
        """Why the folder does not fit the checkpoint of this manifest; None if it does."""
        return (
            self.config_problem(manifest)
            or self._metrics_problem(manifest)
            or self._clients_problem(manifest)
        )

    def config_problem(self, manifest: Manifest) -> str | None:
        unchanged = manifest.config_sha256 == self.config_sha256
        return None if unchanged else CONFIG_CHANGED

    def _metrics_problem(self, manifest: Manifest) -> str | None:
        unchanged = begins_with(read_if_exists(self.path / METRICS) or b"", manifest.metrics)
        return None if unchanged else f"{METRICS} is damaged or was edited"

    def _clients_problem(self, manifest: Manifest) -> str | None:
        try:
            digest = self.store.digest(manifest.round)
        except DatabaseDamaged as error:
            return error.reason
        self.digests[manifest.round] = digest
        if digest.facts == manifest.clients:
            return None
        return (
            f"{CLIENTS} holds {digest.count} memories "
            f"that are not the {manifest.clients['count']} of this checkpoint"
        )


def had_checkpoints(path: Path, config_text: str, lines: int) -> bool:
    """Whether a run with this many lines of metrics must have had a checkpoint.

    A crash leaves at most the lines of the rounds before the first one, or copied lines.
    """
    if (path / COPYING).exists():
        return False
    return lines > _first_checkpoint(config_text) or (path / RESULT).exists()


def _first_checkpoint(config_text: str) -> int:
    """The round after which the run has its first checkpoint."""
    try:
        every = tomllib.loads(config_text).get("checkpoint_every", 1)
    except tomllib.TOMLDecodeError:
        return 1
    return every if isinstance(every, int) else 1
