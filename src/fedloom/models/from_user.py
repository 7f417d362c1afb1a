"""A user's model: an nn.Module, a class, or a function of (shape, classes)."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, is_lazy

from fedloom.core import user_code
from fedloom.core.chain import Chain
from fedloom.core.errors import UserError, raise_all
from fedloom.core.key import Key
from fedloom.core.model_output import contents
from fedloom.core.signature import signature_of
from fedloom.core.spec import Spec, argument_problems
from fedloom.core.tensor_checks import is_plain
from fedloom.models.from_config import build_from_config, takes_config
from fedloom.models.layers import Shape


def build_user_model(
    spec: Spec,
    source: nn.Module | Callable[..., Any],
    shape: Shape,
    classes: int,
    key: Key,
    sample: Callable[[], Tensor],
) -> Chain:
    """The model as a chain of blocks; one that is not a chain becomes a chain of a single block.

    A module is copied and keeps the weights it has. A class or function is called, with torch's
    generator seeded from the key, so that every process builds the same weights. Lazy layers get
    theirs in a forward pass of `sample()`, a batch of one.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key.seed)
        if isinstance(source, nn.Module):
            module: nn.Module = _copy(spec, source)
        else:
            module = _called(spec, source, shape, classes)
        _materialise(spec, module, sample)
    _check_real(spec, module)
    _check_plain(spec, module)
    _give_each_value_a_place(module)
    return module if isinstance(module, Chain) else Chain({"model": module})


def _copy(spec: Spec, source: nn.Module) -> nn.Module:
    """A copy of the user's module."""
    if any(isinstance(part, torch.jit.ScriptModule) for part in source.modules()):
        raise UserError(
            f"model '{user_code.short_reference(spec.name)}' has parts that torch.jit compiled, "
            "and copies of them compute by what torch.jit has seen of each other; pass the module "
            "from which they were made, or a function that builds it"
        )
    try:
        return copy.deepcopy(source, _new_lazy_buffers(source))
    except Exception as error:  # a module may hold anything
        why = str(error).split(". ")[0]
        raise UserError(
            f"model '{user_code.short_reference(spec.name)}' cannot be copied "
            f"({type(error).__name__}: {why}), and every worker needs a copy; pass a function that "
            "builds it instead of the module"
        ) from error


def _new_lazy_buffers(module: nn.Module) -> dict[int, Any]:
    """What deepcopy is to take for lazy buffers, which it cannot copy itself."""
    lazy = (b for b in module.buffers() if isinstance(b, UninitializedBuffer))
    return {
        id(b): UninitializedBuffer(device=b.device, dtype=b.dtype)  # type: ignore[call-arg]
        for b in lazy
    }


def _called(spec: Spec, source: Callable[..., Any], shape: Shape, classes: int) -> nn.Module:
    """What the user's function returns for this shape of a sample and number of classes."""
    if takes_config(source):
        return build_from_config(spec, source, classes)
    given = _arguments(spec, source, shape, classes)
    raise_all(argument_problems(source, spec.args, frozenset(given)), f"model '{spec.name}'")
    args = {**given, **spec.args}
    return user_code.call_user_function("model", spec.name, nn.Module, source, args)


def _materialise(spec: Spec, module: nn.Module, sample: Callable[[], Tensor]) -> None:
    """Give lazy layers (nn.LazyLinear) their weights, in evaluation mode: no statistics change."""
    if not any(map(is_lazy, (*module.parameters(), *module.buffers()))):
        return
    x, was_training = sample(), module.training
    try:
        with torch.no_grad():
            module.eval()(x)
    except Exception as error:  # a user's model can fail in any way
        raise UserError(
            f"model '{user_code.short_reference(spec.name)}' has lazy layers, and a sample of "
            f"shape {tuple(x.shape[1:])} cannot pass through it to give them their weights: "
            f"{type(error).__name__}: {error}; fix its forward"
        ) from error
    module.train(was_training)
    left = [n for n, p in module.named_parameters() if is_lazy(p)]
    if left:
        raise UserError(
            f"the lazy layer of '{left[0]}' got no weights, because no sample passes through it; "
            f"use it in the forward of model '{user_code.short_reference(spec.name)}', or remove it"
        )


def _check_plain(spec: Spec, module: nn.Module) -> None:
    """Raise for a part of the state that is no dense tensor: it cannot be sent or averaged.

    Quantised layers have such parts, and so have modules with a `get_extra_state` of their own.
    """
    for name, value in module.state_dict().items():
        if isinstance(value, Tensor) and is_plain(value):
            continue
        kind = "a sparse or quantised tensor" if isinstance(value, Tensor) else contents(value)
        raise UserError(
            f"'{name}' of model '{user_code.short_reference(spec.name)}' is {kind}, which cannot "
            "be sent or averaged; keep it out of the state_dict, for instance by register_buffer("
            "..., persistent=False), and quantise a model only after training"
        )


def _give_each_value_a_place(module: nn.Module) -> None:
    """Make expanded tensors dense, in which one place in memory stands for several values.

    Nothing can be copied into those.
    """
    for tensor in (*module.parameters(), *module.buffers()):
        if is_plain(tensor):
            steps = zip(tensor.shape, tensor.stride(), strict=True)
            if any(size > 1 and not step for size, step in steps):
                tensor.data = tensor.data.contiguous()


def _check_real(spec: Spec, module: nn.Module) -> None:
    """Raise for a complex tensor: its imaginary part would be lost in the type of the run."""
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.is_complex():
            raise UserError(
                f"'{name}' of model '{user_code.short_reference(spec.name)}' has complex numbers; "
                "store torch.view_as_real of it, and take torch.view_as_complex in its forward"
            )


def _arguments(
    spec: Spec, source: Callable[..., Any], shape: Shape, classes: int
) -> dict[str, Any]:
    """What the function is called with besides the arguments of the spec.

    Shape and classes by name, else as its two parameters; or only num_classes, as torchvision and
    timm call it. A function or class without required parameters is called without any.
    """
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    known = signature_of(source).parameters
    offered: dict[str, Any] = {"shape": shape, "classes": classes}
    if named := {n: value for n, value in offered.items() if n in known}:
        return named
    without = [p for p in known.values() if p.default is p.empty and p.kind in positional]
    required = [p for p in without if p.name not in (*spec.args, "num_classes")]
    if not required:
        fills = "num_classes" in known and "num_classes" not in spec.args
        return {"num_classes": classes} if fills else {}
    if len(required) == 2:
        return dict(zip((p.name for p in required), offered.values(), strict=True))
    raise UserError(
        f"model '{user_code.short_reference(spec.name)}' takes the parameters {', '.join(known)}; "
        "write a function of (shape, classes), or one without required parameters"
    )
