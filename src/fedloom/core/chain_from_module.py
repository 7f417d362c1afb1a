"""Cutting any torch model into a chain of blocks, where one tensor flows from block to block.

The forward pass is traced with torch.fx. A cut after a module is valid if the output of that module
is the only value that later steps use.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from fedloom.core.automatic_cuts import WRITE_CHAIN, automatic_cuts
from fedloom.core.chain import Chain
from fedloom.core.determinism import fork_rng
from fedloom.core.errors import UserError, raise_all, unknown_name
from fedloom.core.forward_graph import ForwardGraph, trace
from fedloom.core.model_output import contents, tensor_of
from fedloom.core.params import sha256


def cut(
    model: nn.Module, at: Sequence[str | int] | None = None, example: Tensor | None = None
) -> Chain:
    """The model as a chain of blocks, cut after the modules named in `at`; it shares its tensors.

    Without `at` it is cut between its layers: those of a Sequential, the stages of a ResNet, the
    encoder layers of a transformer; see `automatic_cuts`. Each block is named after the module that
    ends it, with _ for dots, and the last one is `head`; a name that Chain uses itself, such as
    `layers`, gets a _ at its end. With an example batch the chain is verified to give the same bits
    as the model, in evaluation and in training mode.

    >>> net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> cut(net, at=["1"], example=torch.ones(2, 4)).names
    ('1', 'head')
    """
    if not isinstance(model, nn.Module):
        raise UserError(f"fedloom.cut takes an nn.Module, not {contents(model)}; pass the model")
    if at is not None and not at:
        return model if isinstance(model, Chain) else Chain({"model": model})
    with restored(model):
        return _cut_automatically(model, example) if at is None else _cut(model, at, example)


def _cut(model: nn.Module, at: Sequence[str | int], example: Tensor | None) -> Chain:
    _check_not_compiled(model)
    cuts = [str(cut) for cut in at]  # the layers of a Sequential are called '0', '1' and so on
    name = type(model).__name__
    graph = _traced(model, cuts)
    raise_all(
        (problem for cut in cuts for problem in graph.problems(cut)), f"{name} cannot be cut there"
    )
    blocks: dict[str, nn.Module] = {}
    start = graph.input
    for block, end in graph.block_ends(cuts).items():
        blocks[block] = graph.block(model, start, end)
        start = end
    chain = Chain(blocks)
    raise_all(_shared_tensors(chain), f"{name} cannot be cut there")
    raise_all(_modes_of_its_own(model, chain), f"{name} cannot be cut there")
    if example is not None:
        _verify(model, chain, example)
    return chain


def _cut_automatically(model: nn.Module, example: Tensor | None) -> Chain:
    if isinstance(model, Chain):
        if len(model.names) > 1:
            return model
        model = model.block(model.names[0])
    _check_not_compiled(model)
    if not (at := automatic_cuts(model)):
        raise UserError(
            f"no place was found to cut {type(model).__name__} (its forward branches, draws or "
            "writes to a buffer, it has one layer, or its layers share weights or work in place); "
            f"{WRITE_CHAIN}"
        )
    chain = _cut(model, at, example)
    chain.cut_at = tuple(at)
    return chain


def _check_not_compiled(model: nn.Module) -> None:
    """Raise for what torch.jit or torch.compile has made of a module."""
    if isinstance(model, torch.jit.ScriptModule) or hasattr(model, "_orig_mod"):
        raise UserError(
            f"{type(model).__name__} is compiled and cannot be cut; pass the module from which it "
            "was made; compile=true compiles each block"
        )


@contextmanager
def restored(model: nn.Module) -> Iterator[None]:
    """Restore what a traced forward pass leaves in modules: attributes, and values of buffers."""
    modules = list(model.modules())
    before = [_copied_attributes(module) for module in modules]
    buffers = [(b, b.clone(), b._version) for b in model.buffers() if not b.is_inference()]
    try:
        yield
    finally:
        for module, attributes in zip(modules, before, strict=True):
            module.__dict__.clear()
            module.__dict__.update(attributes)
        for buffer, value, version in buffers:
            if buffer._version != version:
                buffer.data.copy_(value)


def _copied_attributes(module: nn.Module) -> dict[str, Any]:
    """The attributes of a module, with a copy of each dictionary, which may be changed in place."""
    return {n: copy.copy(v) if type(v) is dict else v for n, v in vars(module).items()}


def _traced(model: nn.Module, cuts: Sequence[str]) -> ForwardGraph:
    """The graph of the forward pass, which must be the same in training and evaluation mode."""
    names = [name for name, _ in model.named_modules() if name]
    for cut in cuts:
        if cut not in names:
            raise unknown_name("module", cut, names)
    graphs = []
    for training in (True, False):
        with _mode(model, training):
            graphs.append(trace(model, cuts))
    in_training, in_evaluation = graphs
    if _described(model, in_training) != _described(model, in_evaluation):
        raise UserError(
            f"{type(model).__name__}.forward does different things in training and in evaluation, "
            "or from call to call; "
            "use layers such as nn.Dropout instead of functions that read self.training, "
            f"or {WRITE_CHAIN}"
        )
    return in_training


def _described(model: nn.Module, graph: ForwardGraph) -> str:
    """A graph as text, with the values of constants in place of the names that each trace gives."""

    def values(name: re.Match[str]) -> str:
        return sha256({"": getattr(model, name[0])})

    return re.sub(r"_tensor_constant\d+", values, str(graph.steps[0].graph))


def _shared_tensors(chain: Chain) -> Iterator[str]:
    """A problem for every tensor that two blocks use."""
    owner: dict[int, str] = {}
    for block in chain.names:
        for name, tensor in chain.block(block).state_dict(keep_vars=True).items():
            first = owner.setdefault(id(tensor), block)
            if first != block:
                yield (
                    f"blocks '{first}' and '{block}' share '{name}'; "
                    "cut where no weights are used on both sides"
                )


def _modes_of_its_own(model: nn.Module, chain: Chain) -> Iterator[str]:
    """A problem if a `train` of the user's keeps a layer in one mode; blocks would not call it."""
    for training in (True, False):
        with _mode(model, training):
            modes = {module: module.training for module in model.modules()}
            chain.train(training)
            kept = [n for n, m in model.named_modules() if m.training is not modes[m]]
        if kept:
            yield (
                f"its train() keeps '{kept[0]}' in {'evaluation' if training else 'training'} "
                f"mode, and blocks do not call it; define train() in the class of '{kept[0]}', and "
                "do not cut inside it"
            )
            return


def _verify(model: nn.Module, chain: Chain, example: Tensor) -> None:
    """Raise UserError unless the chain equals the model bit for bit, buffers included."""
    for training in (False, True):
        expected, expected_buffers = _forward(model, example, model, training)
        output, buffers = _forward(chain, example, model, training)
        pairs = zip([expected, *expected_buffers], [output, *buffers], strict=True)
        if not all(torch.equal(a, b) for a, b in pairs):
            mode = "training" if training else "evaluation"
            raise UserError(
                f"the chain differs from {type(model).__name__} in {mode}; "
                "cut elsewhere or use the model without cuts"
            )
    with _mode(model, False), torch.no_grad():
        check_taps(chain, example.clone())


def check_taps(chain: Chain, x: Tensor) -> None:
    """Raise UserError unless every block returns a tensor that the next one does not overwrite.

    The last one may return its logits in an object. Methods keep the outputs of blocks.
    """
    for name in chain.names:
        version = x._version  # counts all writes, also those that happen to change nothing
        output = chain.block(name)(x)
        if name == chain.names[-1]:
            output = tensor_of(output)
        if not isinstance(output, Tensor):
            raise UserError(
                f"block '{name}' returns {contents(output)}, not one tensor; "
                "cut after another module"
            )
        if x._version != version:
            raise UserError(
                f"block '{name}' begins with a layer that overwrites its input; "
                "cut after that layer instead"
            )
        x = output


def _forward(
    run: nn.Module, example: Tensor, model: nn.Module, training: bool
) -> tuple[Tensor, list[Tensor]]:
    """The output of a forward pass and the model's buffers after it; the buffers are restored."""
    before = [b.clone() for b in model.buffers()]
    with (
        _mode(model, training),
        torch.no_grad(),
        fork_rng(),
    ):
        torch.manual_seed(0)
        try:
            return tensor_of(run(example.clone())), [b.clone() for b in model.buffers()]
        except Exception as error:
            raise UserError(
                f"{type(model).__name__} cannot take the example of shape "
                f"{tuple(example.shape)}: {error}"
            ) from error
        finally:
            for buffer, value in zip(model.buffers(), before, strict=True):
                buffer.copy_(value)


@contextmanager
def _mode(model: nn.Module, training: bool) -> Iterator[None]:
    """Put all layers into training or evaluation mode; restore each layer's mode afterwards."""
    before = {module: module.training for module in model.modules()}
    model.train(training)
    try:
        yield
    finally:
        for module, mode in before.items():
            module.training = mode
