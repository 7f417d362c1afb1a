"""Cutting any torch model into a chain of blocks, where one tensor flows from block to block.

The forward pass is traced with torch.fx. A cut after a module is valid if the output of that module
is the only value that later steps use.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.core.determinism import fork_rng
from fedloom.core.errors import UserError, raise_all, unknown_name
from fedloom.core.forward_graph import ForwardGraph, trace


def cut(model: nn.Module, cuts: Sequence[str] = (), example: Tensor | None = None) -> Chain:
    """The model as a chain, cut after the modules named in `cuts`; it shares the model's tensors.

    Without cuts the chain is one block, `model`. Otherwise each block is named after the cut that
    ends it, with _ for dots, and the last one is `head`. With an example batch the chain is
    verified to give the same bits as the model, in evaluation and in training mode.

    >>> net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> cut(net, cuts=["1"], example=torch.ones(2, 4)).names
    ('1', 'head')
    """
    if not cuts:
        return model if isinstance(model, Chain) else Chain({"model": model})
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
    if example is not None:
        _verify(model, chain, example)
    return chain


def suggested_cuts(model: nn.Module, count: int = 3) -> list[str]:
    """Up to `count` modules after which the model can be cut, spread over its forward pass.

    Empty if the forward pass cannot be traced or has no such place.

    >>> suggested_cuts(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)))
    ['0', '1']
    """
    containers = [name for name, module in model.named_modules() if [*module.children()]]
    for inside in ([], [name for name in containers if name]):
        try:
            graph = trace(model, [f"{name}." for name in inside])
        except UserError:
            return []
        if usable := graph.all_usable_cuts(model):
            last = len(usable) - 1
            steps = range(count) if last >= count else range(last + 1)
            return [usable[i * last // max(len(steps) - 1, 1)] for i in steps]
    return []


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
    if str(in_training.steps[0].graph) != str(in_evaluation.steps[0].graph):
        raise UserError(
            f"{type(model).__name__}.forward does different things in training and in evaluation; "
            "use layers such as nn.Dropout instead of functions that read self.training, "
            "or use the model without cuts"
        )
    return in_training


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
        _check_taps(chain, example.clone())


def _check_taps(chain: Chain, x: Tensor) -> None:
    """Methods keep block outputs: each must be a tensor that the next block does not overwrite."""
    for name in chain.names:
        version = x._version  # counts all writes, also those that happen to change nothing
        output = chain.block(name)(x)
        if not isinstance(output, Tensor):
            raise UserError(
                f"block '{name}' returns a {type(output).__name__}, not one tensor; "
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
) -> tuple[Any, list[Tensor]]:
    """The output of a forward pass and the model's buffers after it; the buffers are restored."""
    before = [b.clone() for b in model.buffers()]
    with (
        _mode(model, training),
        torch.no_grad(),
        fork_rng(),
    ):
        torch.manual_seed(0)
        try:
            return run(example.clone()), [b.clone() for b in model.buffers()]
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
