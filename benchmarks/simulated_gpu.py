"""A simulated GPU: tensors on a device of their own, computed by the CPU.

It shows, without a GPU, where code would wait for one. Values are real, so all code runs unchanged.
As on CUDA, tensors of the host and of the device cannot be mixed, except for a number (a tensor
without dimensions) and an index. What CUDA does asynchronously is free. These are counted:

    waits    the host waits until the device has done all that was asked of it: a value is read, a
             copy is not `non_blocking`, or the size of a result depends on values.
    copies   tensors that are copied between host and device, either way.

It does not model time, memory, streams or kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, inference_mode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

aten = torch.ops.aten
NAME = "simulated"
DEVICE = f"{NAME}:0"

# the size of the result depends on values, which CUDA's kernels bring to the host
_VALUE_DEPENDENT = {
    aten.nonzero,
    aten.masked_select,
    aten.bincount,
    aten.repeat_interleave,
    aten._unique2,
    aten.unique_dim,
    aten.unique_consecutive,
    aten.equal,
    aten._local_scalar_dense,
}
_INDEXING = {aten.index, aten.index_put, aten.index_put_, aten._unsafe_index}
_COPIES_INTO = {aten.copy_, aten._foreach_copy_}


@dataclass
class Traffic:
    """What has been counted."""

    waits: float = 0
    copies: float = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.waits + other.waits, self.copies + other.copies)

    def __sub__(self, other: Traffic) -> Traffic:
        return self + other * -1

    def __mul__(self, times: float) -> Traffic:
        return Traffic(self.waits * times, self.copies * times)

    def __truediv__(self, times: float) -> Traffic:
        return self * (1 / times)


class DeviceTensor(Tensor):
    """A tensor of the simulated device; `host` holds its values."""

    host: Tensor

    @staticmethod
    def __new__(cls, host: Tensor) -> DeviceTensor:
        # a wrapper made in inference mode could not be a view of one that was not
        with inference_mode(False):
            made: DeviceTensor = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
                cls,
                host.shape,
                strides=host.stride(),
                storage_offset=host.storage_offset(),
                dtype=host.dtype,
                layout=host.layout,
                device=torch.device(DEVICE),
                requires_grad=False,
                dispatch_sizes_strides_policy="sizes",  # which operations in place may change
            )
        made.host = host
        return made

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            if func == Tensor.data.__set__:  # type: ignore[attr-defined]
                args[0].host = args[1].host
            if func == Tensor.tolist:  # torch refuses it for subclasses
                return args[0].cpu().tolist()
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        return run(func, args, kwargs or {}, Traffic())

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"DeviceTensor({self.host!r})"


class SimulatedGpu(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is active, the device exists, and what would wait or copy is counted."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.traffic = Traffic()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        return run(func, args, kwargs or {}, self.traffic)


def register() -> None:
    """Make the name of the device known to torch, once in a process.

    Backward passes then run in the calling thread. In the thread that torch starts for a device,
    they may still hold tensors of Python when the interpreter ends, which aborts the process.
    """
    _setup_privateuseone_for_python_backend(NAME)
    torch.autograd.set_multithreading_enabled(False)


def run(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], traffic: Traffic) -> Any:
    """The operation on the CPU; its result is on the device if an operand or `device=` is."""
    leaves = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
    on_device = [t for t in leaves if isinstance(t, DeviceTensor)]
    asked = kwargs.get("device")
    target = None if asked is None else torch.device(asked).type
    if not on_device and target != NAME:
        return func(*args, **kwargs)
    packet = func.overloadpacket
    _count(packet, args, kwargs, leaves, on_device, target, traffic)
    host_args, host_kwargs = tree_map(_to_host, (tuple(args), dict(kwargs)))
    if target is not None:
        host_kwargs["device"] = torch.device("cpu")
    result = func(*host_args, **host_kwargs)
    if packet is aten._to_copy and target == "cpu":
        return result
    if packet in _COPIES_INTO and not isinstance(_first(args), DeviceTensor):
        return result if result is None else args[0]
    known = {id(t.host): t for t in on_device}
    return tree_map(lambda t: _to_device(t, known), result)


def _count(
    packet: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    leaves: Sequence[Tensor],
    on_device: Sequence[Tensor],
    target: str | None,
    traffic: Traffic,
) -> None:
    strangers = [t for t in leaves if not isinstance(t, DeviceTensor)]
    if packet is aten._to_copy:
        if (target == "cpu") == bool(on_device) and target is not None:
            _add(traffic, not kwargs.get("non_blocking"), 1)
    elif packet in _COPIES_INTO:
        if strangers:
            waits = not (args[2] if len(args) > 2 else kwargs.get("non_blocking"))
            _add(traffic, waits * len(strangers), len(strangers))
    elif packet in _INDEXING:
        indices = [t for t in tree_leaves(args[1]) if isinstance(t, Tensor)]
        moved = [t for t in indices if not isinstance(t, DeviceTensor)]
        masks = [t for t in indices if t.dtype in (torch.bool, torch.uint8)]
        _add(traffic, len(moved) + len(masks), len(moved))
    elif packet in _VALUE_DEPENDENT:
        _add(traffic, 1, packet is aten._local_scalar_dense)
    elif on_device and any(t.dim() for t in strangers):
        raise RuntimeError(f"{packet}: tensors of the host and of the device are mixed")


def _add(traffic: Traffic, waits: int, copies: int) -> None:
    traffic.waits += waits
    traffic.copies += copies


def _first(args: Sequence[Any]) -> Any:
    return next(iter(tree_leaves(args)), None)


def _to_host(t: Any) -> Any:
    return t.host if isinstance(t, DeviceTensor) else t


def _to_device(t: Any, known: Mapping[int, Tensor]) -> Any:
    """Wrap a result; an operation in place returns its operand."""
    if not isinstance(t, Tensor) or isinstance(t, DeviceTensor):
        return t
    return known.get(id(t)) if id(t) in known else DeviceTensor(t)
