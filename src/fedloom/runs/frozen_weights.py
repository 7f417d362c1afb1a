"""The frozen weights of a model, stored once for all checkpoints of a run.

They never change, and with adapters (LoRA) they are nearly the whole model: a checkpoint that held
them would write a model of gigabytes after every round. Each manifest names the checksum of the
file, so a checkpoint is valid only with the weights it was made with.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from fedloom.core.params import Params
from fedloom.runs.durable_files import read_if_exists, sha256, write_durably
from fedloom.runs.tensor_bytes import MalformedTensors, pack, unpack

FILE = "frozen.safetensors"


@dataclass(frozen=True)
class StoredWeights:
    """Which weights of the model the file has, and its checksum."""

    names: frozenset[str]
    sha256: str


def store(folder: Path, params: Params, names: Iterable[str]) -> StoredWeights | None:
    """Write these weights, unless the file has them already; None if there are no names."""
    frozen = {name: params[name] for name in sorted(names)}
    if not frozen:
        return None
    data = pack(frozen)
    checksum = sha256(data)
    if sha256(read_if_exists(folder / FILE) or b"") != checksum:
        write_durably(folder / FILE, data)
    return StoredWeights(frozenset(frozen), checksum)


def load(folder: Path, checksum: str | None, device: torch.device | str) -> Params | str:
    """The weights with this checksum, or why they cannot be had; none if there is no checksum."""
    if checksum is None:
        return {}
    data = read_if_exists(folder / FILE)
    if data is None:
        return f"{FILE}, with the frozen weights of the model, is missing"
    if sha256(data) != checksum:
        return f"{FILE}, with the frozen weights of the model, is damaged"
    try:
        return unpack(data, device)
    except MalformedTensors as error:
        return f"{FILE}, with the frozen weights of the model, cannot be read: {error}"
