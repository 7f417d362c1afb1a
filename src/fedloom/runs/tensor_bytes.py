"""Named tensors as bytes and back, bit for bit: names in their order, types, shapes, values."""

from __future__ import annotations

import json
from collections.abc import Mapping

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from fedloom.core.params import Params

_ORDER = "order"


def pack(params: Mapping[str, Tensor]) -> bytes:
    """The tensors in the safetensors format.

    It sorts by name, and sums over names are exact only in one order: the order travels in the header.
    """
    return safetensors.torch.save(_owned(params), {_ORDER: json.dumps(list(params))})


def unpack(data: bytes, device: torch.device | str = "cpu") -> Params:
    """The tensors that were packed, each in memory of its own.

    Views of the file's bytes lie unaligned, which vector kernels may answer with other bits: hence the copy.
    """
    tensors = safetensors.torch.load(data)
    return {name: tensors[name].to(device, copy=True) for name in json.loads(_metadata(data)[_ORDER])}


def _metadata(data: bytes) -> dict[str, str]:
    """The notes in a safetensors header, which starts behind its own length in eight bytes."""
    end = 8 + int.from_bytes(data[:8], "little")
    notes: dict[str, str] = json.loads(data[8:end])["__metadata__"]
    return notes


def _owned(params: Mapping[str, Tensor]) -> Params:
    """Contiguous tensors on the CPU, no two of them in the same memory, as the format wants them."""
    seen: set[int] = set()
    owned: Params = {}
    for name, tensor in params.items():
        t = tensor.detach().cpu().contiguous()
        place = t.untyped_storage().data_ptr()
        owned[name] = t.clone() if place in seen else t
        seen.add(place)
    return owned
