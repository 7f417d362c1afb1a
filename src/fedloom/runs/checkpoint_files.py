"""The files of the checkpoint folder: a state and a manifest per round, and what a crash left."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from fedloom.runs.durable_files import TMP_SUFFIX, file_error

KEPT_CHECKPOINTS = 3

_FILE_NAMES = re.compile(
    rf"(?:MANIFEST-(\d+)\.json|round-(\d+)\.safetensors)({re.escape(TMP_SUFFIX)})?"
)

_Kind = Literal["half-written", "manifest", "state"]


class _File(NamedTuple):
    """A file of the checkpoint folder. Sorted, a manifest comes before its state."""

    round: int
    kind: _Kind
    path: Path


def manifest_path(folder: Path, number: int) -> Path:
    return folder / f"MANIFEST-{number}.json"


def state_path(folder: Path, number: int) -> Path:
    return folder / f"round-{number}.safetensors"


def saved_rounds(folder: Path) -> list[int]:
    """The rounds that have a manifest, newest first."""
    return sorted((file.round for file in _files(folder) if file.kind == "manifest"), reverse=True)


def rounds_with_state(folder: Path) -> list[int]:
    """The rounds that have a state, with a manifest or without."""
    return [file.round for file in _files(folder) if file.kind == "state"]


def keep_only(folder: Path, wanted: Callable[[int], bool]) -> None:
    """Delete the checkpoints of other rounds and half-written files that a crash left.

    A manifest is deleted before its state.
    """
    for file in sorted(_files(folder)):
        if not wanted(file.round) or file.kind == "half-written":
            try:
                file.path.unlink()
            except OSError as error:
                raise file_error(file.path, error) from error


def _files(folder: Path) -> list[_File]:
    """The files in the folder that are part of a checkpoint; others are ignored."""
    try:
        paths = list(folder.iterdir())
    except OSError as error:
        raise file_error(folder, error) from error
    files = []
    for path in paths:
        if (match := _FILE_NAMES.fullmatch(path.name)) is not None:
            manifest, state, temporary = match.groups()
            kind: _Kind = "manifest" if manifest else "state"
            if temporary:
                kind = "half-written"
            files.append(_File(int(manifest or state), kind, path))
    return files
