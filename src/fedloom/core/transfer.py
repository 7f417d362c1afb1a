"""Tensors between the host and a device, without waiting for the device."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fedloom.core.params import Params


def to_device(t: Tensor, device: torch.device) -> Tensor:
    """The tensor on the device; the host goes on while it is copied. If already there: itself.

    A copy from pageable memory would wait until the device has done all its work. Random numbers
    are drawn on the host, so that a seed has one result on every device, and are copied this way.
    """
    if t.device == device:
        return t
    if t.device.type == "cpu" and device.type == "cuda":
        t = t.pin_memory()
    # on MPS, memory that is not pinned might be freed before it is copied
    return t.to(device, non_blocking=device.type != "mps")


def all_to_device(tensors: Mapping[str, Tensor], device: torch.device) -> Params:
    """Every tensor on the device, copied by `to_device`."""
    return {name: to_device(t, device) for name, t in tensors.items()}


def in_float64(t: Tensor) -> Tensor:
    """The tensor in float64: where it is, or on the CPU if its device has no such numbers."""
    return t.cpu().double() if t.device.type == "mps" else t.double()
