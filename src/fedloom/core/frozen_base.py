"""Frozen weights are not sent, only their checksum: every process must have the same ones.

They may come from a file of pretrained weights that differs between machines, or be drawn by
another version of torch.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fedloom.core.errors import RunError
from fedloom.core.params import Params, sha256

BASE = "checksum of frozen weights"  # its name in what is sent along with the weights


def base_checksum(frozen: Mapping[str, Tensor]) -> Params:
    """The checksum as a tensor, which every engine can send; empty without frozen weights."""
    if not frozen:
        return {}
    return {"sha256": torch.tensor(list(bytes.fromhex(sha256(frozen))), dtype=torch.uint8)}


def check_base(expected: Params, own: Params) -> None:
    """Raise unless the frozen weights of this process have the checksum of the server's."""
    if not own or not torch.equal(expected["sha256"].cpu(), own["sha256"]):
        raise RunError(
            "the frozen weights of the model are not those of the server; load the same file of "
            "pretrained weights everywhere, and install the same version of torch"
        )
