"""Torch dispatch modes that watch every operation: one counts MACs, one tracks tensor memory."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry
from torch.utils.weak import WeakIdKeyDictionary

from fedloom.diagnostics.cost.latin_hypercube import TRANSFORMS, LatinHypercube

aten = torch.ops.aten
COUNTED_LAYERS = (nn.modules.conv._ConvNd, nn.Linear, nn.RNNBase)  # those that papers count


class MacCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts multiply-accumulates by the formulas of torch's FLOP counter (two FLOPs each).

    macs: all. forward: all but backward passes; a gradient taken inside a loss is a
    backward pass too. layers: what papers count, within `per_layer`: the forward pass of
    convolutions, linear and recurrent layers, and one MAC per input of an adaptive average pool
    that is a module.
    new_layer: set when a layer runs for the first time. sampler: where random choices come from,
    or None to leave them to torch.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.macs = 0.0
        self.forward = 0.0
        self.layers = 0.0
        self.new_layer = False
        self.sampler: LatinHypercube | None = None
        self._seen: weakref.WeakSet[nn.Module] = weakref.WeakSet()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        result = _run_on_meta(func, args, kwargs) if _is_meta(args) else func(*args, **kwargs)
        formula = flop_registry.get(func.overloadpacket)
        if formula is not None:
            self._add(formula(*args, **kwargs, out_val=result) / 2)
        if self.sampler is not None and func.overloadpacket in TRANSFORMS:
            self.sampler.redraw(result, TRANSFORMS[func.overloadpacket], args)
        return result

    def _add(self, macs: float) -> None:
        self.macs += macs
        if not torch._C._current_autograd_node():  # set during a backward pass
            self.forward += macs

    @contextmanager
    def per_layer(self) -> Iterator[None]:
        """Within this context the work of layers is also counted in `layers`."""
        before: list[float] = []

        def enter(module: nn.Module, inputs: Any) -> None:
            if isinstance(module, COUNTED_LAYERS):
                before.append(self.forward)
                self.new_layer |= module not in self._seen
                self._seen.add(module)

        def leave(module: nn.Module, inputs: Any, output: Any) -> None:
            if isinstance(module, COUNTED_LAYERS):
                self.layers += self.forward - before.pop()
            elif isinstance(module, nn.modules.pooling._AdaptiveAvgPoolNd):
                self.layers += inputs[0].numel()

        hooks = register_module_forward_pre_hook(enter), register_module_forward_hook(leave)
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


class MemoryTracker(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Tracks the memory of tensors.

    inputs: the tensors that operations read and that were not made in this context. peak: the
    largest number of bytes, alive at once, of tensors made in it.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.inputs: list[Tensor] = []
        self.peak = 0
        self._live_bytes = 0
        self._seen = WeakIdKeyDictionary()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        self.inputs += [t for t, _ in self._unseen((args, kwargs))]
        result = func(*args, **(kwargs or {}))
        for _, storage in self._unseen(result):
            self._live_bytes += storage.nbytes()
            weakref.finalize(storage, self._freed, storage.nbytes()).atexit = False
        self.peak = max(self.peak, self._live_bytes)
        return result

    def _unseen(self, tree: Any) -> Iterator[tuple[Tensor, torch.UntypedStorage]]:
        """The tensors in a nested structure whose storage has not been seen yet."""
        for t in tree_leaves(tree):
            if isinstance(t, Tensor) and (storage := t.untyped_storage()) not in self._seen:
                self._seen[storage] = True
                yield t, storage

    def _freed(self, count: int) -> None:
        self._live_bytes -= count


def _is_meta(args: Sequence[Any]) -> bool:
    return bool(args) and isinstance(args[0], Tensor) and args[0].is_meta


_BATCH_NORMS = (aten.native_batch_norm.default, aten.native_batch_norm_backward.default)


def _run_on_meta(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run an operation on the meta device, with three exceptions.

    Reading a value gives 1, and a copy to a real device gives zeros, so that code which looks at
    values continues. Batch norm returns its shapes directly, since torch's meta kernel is slow.
    """
    first = args[0]
    if func is aten._local_scalar_dense.default:
        return 1.0 if first.is_floating_point() else 1
    if func in _BATCH_NORMS:
        return torch.empty_like(first), *(first.new_empty(first.shape[1]) for _ in range(2))
    if func is aten._to_copy.default:
        device = torch.device(kwargs.get("device") or "meta")
        if device.type != "meta":
            return torch.zeros(
                first.shape, dtype=kwargs.get("dtype") or first.dtype, device=kwargs["device"]
            )
    return func(*args, **kwargs)
