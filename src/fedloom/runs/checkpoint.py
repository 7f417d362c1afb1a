"""Checkpoints: the server's state in a safetensors file, and a manifest with the checksums of all.

The manifest is written last. It holds the checksums of the state, the frozen weights, the settings,
the metrics so far, the clients' memories, and of the manifest before it. A checkpoint is valid only
if all of them still match. The last three are kept, to fall back on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from fedloom.core import params
from fedloom.core.identity import RunIdentity
from fedloom.core.state import ServerState
from fedloom.runs import frozen_weights
from fedloom.runs.checkpoint_errors import no_valid_checkpoint
from fedloom.runs.checkpoint_files import (
    manifest_path,
    rounds_with_state,
    saved_rounds,
    state_path,
)
from fedloom.runs.durable_files import read_if_exists, seal, sha256, unseal, write_durably
from fedloom.runs.frozen_weights import StoredWeights
from fedloom.runs.journal import Prefix
from fedloom.runs.made_with import made_with
from fedloom.runs.manifest import MANIFEST_FORMAT, Manifest, manifest_problem, read_manifest
from fedloom.runs.memory_digest import DigestFacts
from fedloom.runs.state_layout import flattened, layout_of, paths, unflattened, weight_path
from fedloom.runs.tensor_bytes import MalformedTensors, pack, unpack


@dataclass(frozen=True)
class LoadedCheckpoint:
    """The newest valid checkpoint, and why newer ones (by round) were rejected."""

    manifest: Manifest
    state: ServerState
    rejected: dict[int, str]


# why the run does not fit the checkpoint, and why the state cannot be one of the run; or None
RunCheck = Callable[[Manifest], str | None]
StateCheck = Callable[[ServerState], str | None]


def save(
    folder: Path,
    state: ServerState,
    config_sha256: str,
    clients: DigestFacts,
    metrics: Prefix,
    extra: Mapping[str, Any],
    identity: RunIdentity | None = None,
    frozen: StoredWeights | None = None,
) -> Manifest:
    """Write the state, then the manifest.

    identity: None if only this process is known. frozen: the weights that are stored already and
    not written again; None if there are none.
    """
    stored = frozen.names if frozen else frozenset()
    payload = pack(flattened(state, without=stored))
    manifest = Manifest(
        format=MANIFEST_FORMAT,
        round=state.round,
        config_sha256=config_sha256,
        payload_sha256=sha256(payload),
        frozen_sha256=frozen.sha256 if frozen else None,
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
    write_durably(state_path(folder, state.round), payload)
    write_durably(manifest_path(folder, state.round), text)
    return manifest


def newest_manifest(folder: Path) -> Manifest | None:
    """The newest readable manifest. Whether its checksums still match is not checked."""
    manifests = (_read_manifest(folder, number) for number in saved_rounds(folder))
    return next((m for m in manifests if isinstance(m, Manifest)), None)


def any_state(state: ServerState) -> None:
    """For readers that do not know which run a state belongs to."""


def load_newest(
    folder: Path,
    check_run: RunCheck,
    device: torch.device | str = "cpu",
    check_state: StateCheck = any_state,
) -> LoadedCheckpoint | None:
    """The newest checkpoint that passes both checks; None if no save was ever completed.

    Raises an error if there are checkpoints, but none of them is valid.
    """
    rejected: dict[int, str] = {}
    for number in saved_rounds(folder):
        checkpoint = _load(folder, number, check_run, device, check_state)
        if not isinstance(checkpoint, str):
            return LoadedCheckpoint(*checkpoint, rejected)
        rejected[number] = checkpoint
    states = rounds_with_state(folder)
    # a single state without a manifest: the first save was interrupted
    if not rejected and len(states) <= 1:
        return None
    reasons = rejected or dict.fromkeys(states, "its manifest is missing")
    raise no_valid_checkpoint(folder.parent, reasons)


def _load(
    folder: Path,
    number: int,
    check_run: RunCheck,
    device: torch.device | str,
    check_state: StateCheck,
) -> tuple[Manifest, ServerState] | str:
    """The checkpoint of a round, or why it is invalid."""
    manifest = _read_manifest(folder, number)
    if isinstance(manifest, str):
        return manifest
    reason = _wrong_predecessor(folder, manifest) or check_run(manifest)
    if reason is not None:
        return reason
    state = _read_state(folder, manifest, device)
    if isinstance(state, str):
        return state
    if (reason := check_state(state)) is not None:
        return f"its state does not belong to this run: {reason}"
    return manifest, state


def _read_state(folder: Path, manifest: Manifest, device: torch.device | str) -> ServerState | str:
    """The state that a manifest describes, or why it is invalid."""
    path = state_path(folder, manifest.round)
    payload = read_if_exists(path)
    if payload is None:
        return f"{path.name} is missing"
    if sha256(payload) != manifest.payload_sha256:
        return f"{path.name} is damaged"
    try:
        flat = unpack(payload, device)
    except MalformedTensors as error:
        return f"{path.name} cannot be read: {error}"
    frozen = frozen_weights.load(folder, manifest.frozen_sha256, device)
    if isinstance(frozen, str):
        return frozen
    flat |= {weight_path(name): tensor for name, tensor in frozen.items()}
    if sorted(paths(manifest.layout)) != sorted(flat):
        return f"{path.name} holds other tensors than its manifest says"
    state = unflattened(manifest.round, manifest.layout, flat)
    if params.sha256(state.params) != manifest.weights_sha256:
        return f"{path.name} holds other weights than its manifest says"
    return state


def _read_manifest(folder: Path, number: int) -> Manifest | str:
    """The manifest of a round, or why it cannot be read."""
    path = manifest_path(folder, number)
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
    data = read_if_exists(manifest_path(folder, earlier)) or b""
    return {"round": earlier, "sha256": sha256(data)}


def _wrong_predecessor(folder: Path, manifest: Manifest) -> str | None:
    """Why a checkpoint belongs to another run: the manifest before it is not the one it names.

    A manifest before it that is missing or damaged is no reason.
    """
    previous = manifest.previous
    if previous is None:
        return None
    data = read_if_exists(manifest_path(folder, previous["round"]))
    if data is None or unseal(data) is None or sha256(data) == previous["sha256"]:
        return None
    return (
        f"it does not follow the checkpoint of round {previous['round']}, so it is from another run"
    )
