"""Named tensors to bytes and back, bit for bit: names in their order, types, shapes, values."""

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

    safetensors sorts by name, but floating-point sums over tensors depend on their order, so the
    order is stored in the header.
    """
    return safetensors.torch.save(_unshared(params), {_ORDER: json.dumps(list(params))})


def unpack(data: bytes, device: torch.device | str = "cpu") -> Params:
    """The tensors that were packed, each in its own memory.

    They are copied, because views of the file's bytes are unaligned, for which vector kernels may
    compute other bits.
    """
    tensors = safetensors.torch.load(data)
    names = json.loads(_metadata(data)[_ORDER])
    return {name: tensors[name].to(device, copy=True) for name in names}


def _metadata(data: bytes) -> dict[str, str]:
    """The metadata in a safetensors header, which follows its own length in eight bytes."""
    end = 8 + int.from_bytes(data[:8], "little")
    metadata: dict[str, str] = json.loads(data[8:end])["__metadata__"]
    return metadata


def _unshared(params: Mapping[str, Tensor]) -> Params:
    """Contiguous tensors on the CPU, no two of which share memory, as the format requires."""
    seen: set[int] = set()
    unshared: Params = {}
    for name, tensor in params.items():
        t = tensor.detach().cpu().contiguous()
        address = t.untyped_storage().data_ptr()
        unshared[name] = t.clone() if address in seen else t
        seen.add(address)
    return unshared
