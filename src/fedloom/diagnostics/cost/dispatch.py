"""Watchers of torch: what it computes, which tensors it touches; and draws that are spread evenly."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry
from torch.utils.weak import WeakIdKeyDictionary

from fedloom.core.key import Key

aten = torch.ops.aten
LAYERS = (nn.modules.conv._ConvNd, nn.Linear, nn.RNNBase)
FEW = (
    64  # a draw of more numbers than this is noise on a tensor, not a choice that changes the work
)


class Meter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Multiply-accumulates by the formulas of torch's FLOP counter (two flops each): all, those going forward, those of layers.

    A gradient that a loss takes by itself is a way back like any other. The layers are those that papers count, going forward:
    convolutions, linear and recurrent layers, and each input of an adaptive average pool that is a module. fresh: whether a layer
    was met for the first time. cube: where draws come from, if they are not to be left as they are.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.macs = 0.0
        self.forward = 0.0
        self.layers = 0.0
        self.fresh = False
        self.cube: Hypercube | None = None
        self._seen: weakref.WeakSet[nn.Module] = weakref.WeakSet()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        result = _without_numbers(func, args, kwargs) if _is_meta(args) else func(*args, **kwargs)
        formula = flop_registry.get(func.overloadpacket)
        if formula is not None:
            work = formula(*args, **kwargs, out_val=result) / 2
            self.macs += work
            self.forward += 0.0 if torch._C._current_autograd_node() else work
        if self.cube is not None and func.overloadpacket in _PLACES:
            self.cube.redraw(result, _PLACES[func.overloadpacket], args)
        return result

    @contextmanager
    def layerwise(self) -> Iterator[None]:
        """Inside, work is also booked on layers."""
        before: list[float] = []

        def enter(module: nn.Module, inputs: Any) -> None:
            if isinstance(module, LAYERS):
                before.append(self.forward)
                self.fresh |= module not in self._seen
                self._seen.add(module)

        def leave(module: nn.Module, inputs: Any, output: Any) -> None:
            if isinstance(module, LAYERS):
                self.layers += self.forward - before.pop()
            elif isinstance(module, nn.AdaptiveAvgPool2d):
                self.layers += inputs[0].numel()

        hooks = register_module_forward_pre_hook(enter), register_module_forward_hook(leave)
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


class Footprint(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The tensors that are found (`held`) and the most bytes of tensors made inside that are alive at once (`peak`)."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.held: list[Tensor] = []
        self.peak = 0
        self._live = 0
        self._known = WeakIdKeyDictionary()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        self.held += [t for t, _ in self._new((args, kwargs))]
        result = func(*args, **(kwargs or {}))
        for _, storage in self._new(result):
            self._live += storage.nbytes()
            weakref.finalize(storage, self._freed, storage.nbytes()).atexit = False
        self.peak = max(self.peak, self._live)
        return result

    def _new(self, tree: Any) -> Iterator[tuple[Tensor, torch.UntypedStorage]]:
        for t in tree_leaves(tree):
            if isinstance(t, Tensor) and (storage := t.untyped_storage()) not in self._known:
                self._known[storage] = True
                yield t, storage

    def _freed(self, count: int) -> None:
        self._live -= count


def _is_meta(args: Sequence[Any]) -> bool:
    return bool(args) and isinstance(args[0], Tensor) and args[0].is_meta


def _without_numbers(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """An operation on shapes alone: goes on where numbers are asked for, and spares batch norm torch's slow way round."""
    first = args[0]
    if func is aten._local_scalar_dense.default:
        return 1.0 if first.is_floating_point() else 1
    if func in (aten.native_batch_norm.default, aten.native_batch_norm_backward.default):
        return torch.empty_like(first), *(first.new_empty(first.shape[1]) for _ in range(2))
    if (
        func is aten._to_copy.default
        and torch.device(kwargs.get("device") or "meta").type != "meta"
    ):
        return torch.zeros(
            first.shape, dtype=kwargs.get("dtype") or first.dtype, device=kwargs["device"]
        )
    return func(*args, **kwargs)


class Hypercube:
    """Latin hypercube sampling: over `size` steps, each of a step's draws visits every `size`-th part of its range once.

    What each draw adds by itself is then nearly exact in the mean, with few steps. Whole tensors of noise are left as they are.
    """

    def __init__(self, key: Key, size: int) -> None:
        self.drawn = 0
        self._key = key
        self._size = size
        self._at = 0
        self._columns: dict[tuple[int, int], Tensor] = {}

    def turn_to(self, step: int) -> None:
        """The next step begins."""
        self._at, self.drawn = step, 0

    def redraw(self, result: Any, place: Callable[..., Tensor], args: Sequence[Any]) -> None:
        """Overwrite what an operation has drawn."""
        if isinstance(result, Tensor) and not result.is_meta and 0 < result.numel() <= FEW:
            numbers = torch.stack([self._next() for _ in range(result.numel())]).reshape(
                result.shape
            )
            result.copy_(place(numbers, *args))

    def _next(self) -> Tensor:
        number, self.drawn = self.drawn, self.drawn + 1
        cube, row = divmod(self._at, self._size)
        if (cube, number) not in self._columns:
            noise = self._key.fold(cube, number).generator()
            order = torch.randperm(self._size, generator=noise)
            self._columns[cube, number] = (
                order + torch.rand(self._size, generator=noise)
            ) / self._size
        return self._columns[cube, number][row]


def _whole(u: Tensor, *args: Any) -> Tensor:
    numbers = [a for a in args if isinstance(a, int)]
    low, high = numbers if len(numbers) == 2 else (0, numbers[0])
    return torch.floor(low + u * (high - low))


def _between(u: Tensor, result: Tensor, low: float = 0.0, high: float = 1.0) -> Tensor:
    return low + u * (high - low)


_PLACES: dict[
    Any, Callable[..., Tensor]
] = {  # from a number between 0 and 1 to what the operation would have drawn
    aten.rand: lambda u, *args: u,
    aten.uniform_: _between,
    aten.randint: _whole,
    aten.bernoulli: lambda u, p, *args: u < p,
    aten.bernoulli_: lambda u, result, p=0.5, *args: u < p,
}


def mean_and_error(values: Sequence[float], size: int) -> tuple[float, float]:
    """The mean of hypercubes of that size, and its standard error from how their means differ."""
    cubes = torch.tensor(values, dtype=torch.float64).reshape(-1, size).mean(dim=1)
    return float(cubes.mean()), float(cubes.std()) / math.sqrt(len(cubes))
