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


class MalformedTensors(ValueError):
    """Bytes that `pack` did not write. The message is a short phrase about "it"."""


def pack(params: Mapping[str, Tensor]) -> bytes:
    """The tensors in the safetensors format.

    safetensors sorts by name, but floating-point sums over tensors depend on their order, so the
    order is stored in the header.
    """
    return safetensors.torch.save(_unshared(params), {_ORDER: json.dumps(list(params))})


def unpack(data: bytes, device: torch.device | str = "cpu") -> Params:
    """The tensors that were packed, each in its own memory; raises MalformedTensors.

    They are copied, because views of the file's bytes are unaligned, for which vector kernels may
    compute other bits.
    """
    tensors = _loaded(data)
    names = _order(data)
    if sorted(names) != sorted(tensors):
        raise MalformedTensors("its list of names does not fit its tensors")
    return {name: tensors[name].to(device, copy=True) for name in names}


def _loaded(data: bytes) -> Params:
    try:
        return safetensors.torch.load(data)
    # besides its own error the library lets through what its header leads to, such as a KeyError
    # for a type that torch does not have or a ValueError for a negative length
    except Exception as error:
        raise MalformedTensors(f"it is not a safetensors file ({_one_line(error)})") from error


def _order(data: bytes) -> list[str]:
    """The names in their order, from the header, which follows its own length in eight bytes."""
    end = 8 + int.from_bytes(data[:8], "little")
    try:
        names = json.loads(json.loads(data[8:end])["__metadata__"][_ORDER])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise MalformedTensors("its header does not list its tensors in order") from error
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise MalformedTensors("its header does not list its tensors in order")
    return names


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:100] or type(error).__name__


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
