"""Checkpoints: the server's state in a safetensors file, and a manifest with the checksums of all.

The manifest is written last. It holds the checksums of the state, the settings, the metrics so far,
the clients' memories, and of the manifest before it. A checkpoint is valid only if all of them
still match. The last three are kept, to fall back on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from fedloom.core import params
from fedloom.core.errors import RunError, UserError
from fedloom.core.identity import RunIdentity
from fedloom.core.state import ServerState
from fedloom.runs.durable_files import (
    TMP_SUFFIX,
    file_error,
    read_if_exists,
    seal,
    sha256,
    unseal,
    write_durably,
)
from fedloom.runs.journal import Prefix
from fedloom.runs.made_with import made_with
from fedloom.runs.manifest import MANIFEST_FORMAT, Manifest, manifest_problem, read_manifest
from fedloom.runs.memory_digest import DigestFacts
from fedloom.runs.state_layout import flattened, layout_of, paths, unflattened
from fedloom.runs.tensor_bytes import MalformedTensors, pack, unpack

KEPT_CHECKPOINTS = 3
CONFIG_CHANGED = "config.toml is not the one this run began with (edited or damaged)"

_LAST_BITS = "the result may differ in its last bits from an uninterrupted run"
_EFFECTS = dict.fromkeys(
    ("fedloom", "fedloom source"), "the result may differ from an uninterrupted run"
)
_FILE_NAMES = re.compile(
    rf"(?:MANIFEST-(\d+)\.json|round-(\d+)\.safetensors)({re.escape(TMP_SUFFIX)})?"
)


@dataclass(frozen=True)
class LoadedCheckpoint:
    """The newest valid checkpoint, and why newer ones (by round) were rejected."""

    manifest: Manifest
    state: ServerState
    rejected: dict[int, str]


Check = Callable[[Manifest], str | None]  # returns why the checkpoint is invalid, or None
StateCheck = Callable[
    [ServerState], str | None
]  # returns why the state is not of this run, or None

_Kind = Literal["half-written", "manifest", "state"]


class _File(NamedTuple):
    """A file of the checkpoint folder. Sorted, a manifest comes before its state."""

    round: int
    kind: _Kind
    path: Path


def save(
    folder: Path,
    state: ServerState,
    config_sha256: str,
    clients: DigestFacts,
    metrics: Prefix,
    extra: Mapping[str, Any],
    identity: RunIdentity | None = None,
) -> Manifest:
    """Write the state, then the manifest. identity: None if only this process is known."""
    payload = pack(flattened(state))
    manifest = Manifest(
        format=MANIFEST_FORMAT,
        round=state.round,
        config_sha256=config_sha256,
        payload_sha256=sha256(payload),
        weights_sha256=params.sha256(state.params),
        clients=clients,
        metrics=metrics,
        layout=layout_of(state),
        identity=identity or RunIdentity(made_with()),
        threads=torch.get_num_threads(),
        previous=_previous(folder, state.round),
        extra=dict(extra),
    )
    text = seal(asdict(manifest))
    write_durably(_payload_path(folder, state.round), payload)
    write_durably(_manifest_path(folder, state.round), text)
    return manifest


def version_warnings(manifest: Manifest) -> list[str]:
    """A warning for each change of software or processor since the checkpoint."""
    changes = manifest.identity.made_with.changes(made_with())
    return [
        f"the checkpoint of round {manifest.round} was made with {what} {then}, "
        f"and this is {what} {now}: {_EFFECTS.get(what, _LAST_BITS)}"
        for what, (then, now) in changes.items()
    ]


def saved_rounds(folder: Path) -> list[int]:
    """The rounds that have a manifest, newest first."""
    return sorted((file.round for file in _files(folder) if file.kind == "manifest"), reverse=True)


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


def newest_manifest(folder: Path) -> Manifest | None:
    """The newest readable manifest. Whether its checksums still match is not checked."""
    manifests = (_read_manifest(folder, number) for number in saved_rounds(folder))
    return next((m for m in manifests if isinstance(m, Manifest)), None)


def any_state(state: ServerState) -> None:
    """For readers that do not know which run a state belongs to."""


def load_newest(
    folder: Path,
    checks: Sequence[Check],
    device: torch.device | str = "cpu",
    check_state: StateCheck = any_state,
) -> LoadedCheckpoint | None:
    """The newest checkpoint that passes every check; None if no save was ever completed.

    Raises an error if there are checkpoints, but none of them is valid.
    """
    rejected: dict[int, str] = {}
    for number in saved_rounds(folder):
        checkpoint = _load(folder, number, checks, device, check_state)
        if not isinstance(checkpoint, str):
            return LoadedCheckpoint(*checkpoint, rejected)
        rejected[number] = checkpoint
    states = [file.round for file in _files(folder) if file.kind == "state"]
    # a single state without a manifest: the first save was interrupted
    if not rejected and len(states) <= 1:
        return None
    reasons = rejected or dict.fromkeys(states, "its manifest is missing")
    raise no_valid_checkpoint(folder.parent, reasons)


def _load(
    folder: Path,
    number: int,
    checks: Sequence[Check],
    device: torch.device | str,
    check_state: StateCheck,
) -> tuple[Manifest, ServerState] | str:
    """The checkpoint of a round, or why it is invalid."""
    manifest = _read_manifest(folder, number)
    if isinstance(manifest, str):
        return manifest
    for check in (lambda m: _wrong_predecessor(folder, m), *checks):
        if (reason := check(manifest)) is not None:
            return reason
    state = _read_state(_payload_path(folder, number), manifest, device)
    if isinstance(state, str):
        return state
    if (reason := check_state(state)) is not None:
        return f"its state does not belong to this run: {reason}"
    return manifest, state


def _read_state(path: Path, manifest: Manifest, device: torch.device | str) -> ServerState | str:
    """The state that a manifest describes, or why it is invalid."""
    payload = read_if_exists(path)
    if payload is None:
        return f"{path.name} is missing"
    if sha256(payload) != manifest.payload_sha256:
        return f"{path.name} is damaged"
    try:
        flat = unpack(payload, device)
    except MalformedTensors as error:
        return f"{path.name} cannot be read: {error}"
    if sorted(paths(manifest.layout)) != sorted(flat):
        return f"{path.name} holds other tensors than its manifest says"
    state = unflattened(manifest.round, manifest.layout, flat)
    if params.sha256(state.params) != manifest.weights_sha256:
        return f"{path.name} holds other weights than its manifest says"
    return state


def _read_manifest(folder: Path, number: int) -> Manifest | str:
    """The manifest of a round, or why it cannot be read."""
    path = _manifest_path(folder, number)
    facts = unseal(read_if_exists(path))
    if facts is None:
        return f"{path.name} is damaged"
    if facts.get("format") != MANIFEST_FORMAT:
        format = facts.get("format")
        return f"{path.name} has format {format}, and this fedloom reads {MANIFEST_FORMAT}"
    if (reason := manifest_problem(facts)) is not None:
        return f"{path.name} is invalid: {reason}"
    if facts["round"] != number:
        return f"{path.name} belongs to round {facts['round']}"
    return read_manifest(facts)


def _previous(folder: Path, number: int) -> dict[str, Any] | None:
    """Round and checksum of the manifest before this round."""
    earlier = next((r for r in saved_rounds(folder) if r < number), None)
    if earlier is None:
        return None
    data = read_if_exists(_manifest_path(folder, earlier)) or b""
    return {"round": earlier, "sha256": sha256(data)}


def _wrong_predecessor(folder: Path, manifest: Manifest) -> str | None:
    """Why a checkpoint belongs to another run: the manifest before it is not the one it names.

    A manifest before it that is missing or damaged is no reason.
    """
    previous = manifest.previous
    if previous is None:
        return None
    data = read_if_exists(_manifest_path(folder, previous["round"]))
    if data is None or unseal(data) is None or sha256(data) == previous["sha256"]:
        return None
    return (
        f"it does not follow the checkpoint of round {previous['round']}, so it is from another run"
    )


def no_valid_checkpoint(run: Path, rejected: Mapping[int, str]) -> RunError | UserError:
    """The error for a run without a valid checkpoint. rejected: why, by round."""
    rounds_by_reason: dict[str, list[str]] = {}
    for number, reason in rejected.items():
        rounds_by_reason.setdefault(reason, []).append(str(number))
    reasons = "; ".join(
        f"round {', '.join(numbers)}: {reason}" for reason, numbers in rounds_by_reason.items()
    )
    restart = _restart(run)
    if CONFIG_CHANGED in rounds_by_reason:
        return UserError(
            f"{run} cannot be resumed: {reasons}; put the file back as it was, or {restart}"
        )
    return RunError(
        f"{run} has no valid checkpoint: {reasons}; restore the files from a copy, or {restart}"
    )


def checkpoints_gone(run: Path, rounds: int) -> RunError:
    """The error for a run that had checkpoints, and whose checkpoint folder holds none now."""
    return RunError(
        f"{run} has {rounds} rounds in metrics.jsonl, but its checkpoints are gone from "
        f"{run}/checkpoint; put them back from a copy, or {_restart(run)}"
    )


def _restart(run: Path) -> str:
    return (
        f"start again with `fedloom run --config {run}/config.toml --out NEW` (nothing was deleted)"
    )


def _manifest_path(folder: Path, number: int) -> Path:
    return folder / f"MANIFEST-{number}.json"


def _payload_path(folder: Path, number: int) -> Path:
    return folder / f"round-{number}.safetensors"


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
