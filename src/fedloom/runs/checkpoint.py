"""Checkpoints: the server's state in a safetensors file, and a sealed manifest that vouches for it and the rest of the folder.

The manifest is written last. It names the checksum of the state, of the settings, of the metrics so far and of the clients'
memories, and of the manifest before it; it counts only if all of them still fit. The last three are kept to fall back on.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import fedloom
from fedloom.core import params
from fedloom.core.errors import RunError, UserError
from fedloom.core.params import Params
from fedloom.core.state import ServerState
from fedloom.runs.client_store import Facts
from fedloom.runs.durable_files import BESIDE, failed, read, seal, sha256, unseal, write_durably
from fedloom.runs.journal import Prefix
from fedloom.runs.tensor_bytes import pack, unpack

FORMAT = 1
KEEP = 3
EDITED = "config.toml is not the one this run began with (edited or damaged)"

_NAMES = re.compile(rf"(?:MANIFEST-(\d+)\.json|round-(\d+)\.safetensors)({re.escape(BESIDE)})?")


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint vouches for. layout: the names of the tensors by room, in their order; extra: the caller's own facts."""

    format: int
    round: int
    config_sha256: str
    payload_sha256: str
    weights_sha256: str
    clients: Facts
    metrics: Prefix
    layout: dict[str, Any]
    made_with: dict[str, str]
    threads: int
    previous: dict[str, Any] | None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Found:
    """The newest checkpoint that fits, and why newer ones, by round, do not."""

    manifest: Manifest
    state: ServerState
    refused: dict[int, str]


Check = Callable[[Manifest], str | None]


def save(
    folder: Path, state: ServerState, config_sha256: str, clients: Facts, metrics: Prefix, extra: Mapping[str, Any]
) -> Manifest:
    """Write the state, then the manifest."""
    payload = pack(_flat(state))
    manifest = Manifest(
        format=FORMAT,
        round=state.round,
        config_sha256=config_sha256,
        payload_sha256=sha256(payload),
        weights_sha256=params.sha256(state.params),
        clients=clients,
        metrics=metrics,
        layout=_layout(state),
        made_with=made_with(),
        threads=torch.get_num_threads(),
        previous=_previous(folder, state.round),
        extra=dict(extra),
    )
    text = seal(asdict(manifest))
    write_durably(_payload(folder, state.round), payload)
    write_durably(_manifest(folder, state.round), text)
    return manifest


def made_with() -> dict[str, str]:
    """What the bits of a result depend on, beside the settings."""
    return {
        "fedloom": fedloom.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
    }


def differences(manifest: Manifest) -> list[str]:
    """What has changed since then that may change the bits of the result."""
    now = made_with()
    return [
        f"the checkpoint of round {manifest.round} was made with {what} {then}, and this is {what} {now[what]}: "
        "the result may differ in its last bits from an uninterrupted run"
        for what, then in manifest.made_with.items()
        if what != "python" and now.get(what) != then
    ]


def rounds(folder: Path) -> list[int]:
    """The rounds of which there is a manifest, newest first."""
    return sorted((number for number, kind, _ in _contents(folder) if kind == "manifest"), reverse=True)


def keep_only(folder: Path, wanted: Callable[[int], bool]) -> None:
    """Delete the checkpoints of other rounds and what a crash left half-written; a manifest goes before its state."""
    for number, _, path in sorted(_contents(folder)):
        if not wanted(number) or path.name.endswith(BESIDE):
            try:
                path.unlink()
            except OSError as error:
                raise failed(path, error) from error


def newest(folder: Path) -> Manifest | None:
    """The newest manifest that is sound in itself; what it vouches for is not looked at."""
    manifests = (_opened(folder, number) for number in rounds(folder))
    return next((m for m in manifests if isinstance(m, Manifest)), None)


def latest(folder: Path, checks: Sequence[Check], device: torch.device | str = "cpu") -> Found | None:
    """The newest checkpoint that passes every check; None where no save was ever completed; an error where none is left."""
    refused: dict[int, str] = {}
    for number in rounds(folder):
        found = _examined(folder, number, checks, device)
        if not isinstance(found, str):
            return Found(*found, refused)
        refused[number] = found
    orphans = [number for number, kind, _ in _contents(folder) if kind == "state"]
    if not refused and len(orphans) <= 1:  # one state without a manifest: the first save was cut short
        return None
    raise none_left(folder.parent, refused or dict.fromkeys(orphans, "its manifest is missing"))


def _examined(folder: Path, number: int, checks: Sequence[Check], device: torch.device | str) -> tuple[Manifest, ServerState] | str:
    """The checkpoint of a round, or why it cannot be used."""
    manifest = _opened(folder, number)
    if isinstance(manifest, str):
        return manifest
    for check in (lambda m: _out_of_line(folder, m), *checks):
        if (why := check(manifest)) is not None:
            return why
    payload = read(_payload(folder, number))
    if payload is None or sha256(payload) != manifest.payload_sha256:
        return f"{_payload(folder, number).name} is {'missing' if payload is None else 'damaged'}"
    state = _arranged(number, manifest.layout, unpack(payload, device))
    if params.sha256(state.params) != manifest.weights_sha256:
        return f"{_payload(folder, number).name} holds other weights than its manifest says"
    return manifest, state


def _opened(folder: Path, number: int) -> Manifest | str:
    """A manifest that is sound in itself, or why it is not."""
    path = _manifest(folder, number)
    facts = unseal(read(path))
    if facts is None:
        return f"{path.name} is damaged"
    if facts.get("format") != FORMAT:
        return f"{path.name} has format {facts.get('format')}, and this fedloom reads {FORMAT}"
    return Manifest(**facts) if facts["round"] == number else f"{path.name} belongs to round {facts['round']}"


def _previous(folder: Path, number: int) -> dict[str, Any] | None:
    before = next((r for r in rounds(folder) if r < number), None)
    return None if before is None else {"round": before, "sha256": sha256(read(_manifest(folder, before)) or b"")}


def _out_of_line(folder: Path, manifest: Manifest) -> str | None:
    """Whether it follows on another history than the manifest before it, which counts if it is there and sound."""
    before = manifest.previous
    data = None if before is None else read(_manifest(folder, before["round"]))
    if before is None or unseal(data) is None or sha256(data or b"") == before["sha256"]:
        return None
    return f"it does not follow on the checkpoint of round {before['round']}, and comes from another run"


def none_left(run: Path, refused: Mapping[int, str]) -> RunError | UserError:
    """What to say where no checkpoint can be used, by round and reason."""
    reasons: dict[str, list[str]] = {}
    for number, why in refused.items():
        reasons.setdefault(why, []).append(str(number))
    said = "; ".join(f"round {', '.join(numbers)}: {why}" for why, numbers in reasons.items())
    remedy = f"start again with `fedloom run --config {run}/config.toml --out NEW` (nothing was deleted)"
    if EDITED in reasons:
        return UserError(f"{run} cannot be resumed: {said}; put the file back as it was, or {remedy}")
    return RunError(f"{run} has no sound checkpoint: {said}; put the files back from a copy, or {remedy}")


def _flat(state: ServerState) -> Params:
    """All tensors by their paths, of which no two may be the same."""
    flat, rooms = state.tensors(), [*state.shared.values(), *(p for m in state.memory.values() for p in m.values())]
    if len(flat) < len(state.params) + sum(len(room) for room in rooms):
        raise RunError("two tensors of the server have the same path; leave '/' out of the names of stages and exchanges")
    return flat


def _layout(state: ServerState) -> dict[str, Any]:
    """The names by room, in order. Rooms without tensors count too: a stage may begin with an empty memory."""
    return {
        "params": list(state.params),
        "shared": {word: list(p) for word, p in state.shared.items()},
        "memory": {stage: {word: list(p) for word, p in m.items()} for stage, m in state.memory.items()},
    }


def _arranged(number: int, layout: Mapping[str, Any], flat: Mapping[str, Tensor]) -> ServerState:
    """The state of which `ServerState.tensors` made the flat dictionary."""

    def room(path: str, names: Sequence[str]) -> Params:
        return {name: flat[f"{path}/{name}"] for name in names}

    memory = {s: {w: room(f"memory/{s}/{w}", names) for w, names in words.items()} for s, words in layout["memory"].items()}
    shared = {word: room(f"shared/{word}", names) for word, names in layout["shared"].items()}
    return ServerState(number, room("params", layout["params"]), memory, shared)


def _manifest(folder: Path, number: int) -> Path:
    return folder / f"MANIFEST-{number}.json"


def _payload(folder: Path, number: int) -> Path:
    return folder / f"round-{number}.safetensors"


def _contents(folder: Path) -> list[tuple[int, str, Path]]:
    """What is ours in the folder: round, kind (manifest, state or half), path."""
    try:
        paths = list(folder.iterdir())
    except OSError as error:
        raise failed(folder, error) from error
    found = []
    for path in paths:
        if (match := _NAMES.fullmatch(path.name)) is not None:
            manifest, state, half = match.groups()
            kind = "half" if half else "manifest" if manifest else "state"
            found.append((int(manifest or state), kind, path))
    return found
