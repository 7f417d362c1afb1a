"""Cutting any torch model into a chain of blocks, where one tensor flows from block to block.

The forward pass is traced with torch.fx. A cut after a module is valid if the output of that module
is the only value that later steps use.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from fedloom.core.chain import Chain
from fedloom.core.errors import UserError, raise_all, unknown_name


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
            graph = _trace(model, [f"{name}." for name in inside])
        except UserError:
            return []
        if usable := graph.all_usable_cuts(model):
            last = len(usable) - 1
            steps = range(count) if last >= count else range(last + 1)
            return [usable[i * last // max(len(steps) - 1, 1)] for i in steps]
    return []


class _Tracer(fx.Tracer):
    """Traces into modules that contain a cut, and records the output of every module it meets."""

    def __init__(self, cuts: Sequence[str]) -> None:
        super().__init__()
        self.inside = {cut[:i] for cut in cuts for i, letter in enumerate(cut) if letter == "."}
        self.outputs: dict[str, list[fx.Node]] = {}

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return module_qualified_name not in self.inside

    def call_module(
        self,
        m: nn.Module,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        result = super().call_module(m, forward, args, kwargs)
        if isinstance(result, fx.Proxy):
            self.outputs.setdefault(self.path_of_module(m), []).append(result.node)
        return result


@dataclass(frozen=True)
class _Graph:
    """The steps of a forward pass in order, and by module name the steps that give its output."""

    steps: list[fx.Node]
    outputs: dict[str, list[fx.Node]]
    input: fx.Node
    output: fx.Node

    @property
    def position(self) -> dict[fx.Node, int]:
        return {node: i for i, node in enumerate(self.steps)}

    def crossing(self, cut: fx.Node) -> list[fx.Node]:
        """Values computed up to the cut and used after it.

        Weights do not count: every block fetches its own.
        """
        position = self.position
        here = position[cut]
        before = [n for n in self.steps[: here + 1] if n.op != "get_attr"]
        return [n for n in before if any(position.get(user, here) > here for user in n.users)]

    def valid_cuts(self) -> dict[str, fx.Node]:
        """The modules whose output alone is used by what follows, with the step that gives it."""
        ends = {
            name: nodes[0]
            for name, nodes in self.outputs.items()
            if len(nodes) == 1 and nodes[0] is not self.output
        }
        return {name: node for name, node in ends.items() if self.crossing(node) == [node]}

    def usable_cuts(self, near: fx.Node) -> list[str]:
        """The three valid cuts nearest to a step."""
        position, ends = self.position, self.valid_cuts()
        return sorted(ends, key=lambda name: abs(position[ends[name]] - position[near]))[:3]

    def all_usable_cuts(self, model: nn.Module) -> list[str]:
        """The valid cuts in order, except those before a layer that overwrites its input."""

        def overwritten(node: fx.Node) -> bool:
            layers = [
                model.get_submodule(str(u.target)) for u in node.users if u.op == "call_module"
            ]
            return any(getattr(layer, "inplace", False) for layer in layers)

        position, ends = self.position, self.valid_cuts()
        by_step = {node: name for name, node in ends.items() if not overwritten(node)}
        return [by_step[node] for node in sorted(by_step, key=lambda node: position[node])]

    def problems(self, cut: str) -> Iterator[str]:
        """Why the model cannot be cut after this module."""
        ends = self.outputs.get(cut, [])
        if len(ends) != 1:
            yield (
                f"'{cut}' gives a tensor {len(ends)} times in a forward pass, not once; "
                "cut after another module"
            )
        elif ends[0] is self.output:
            yield f"nothing follows '{cut}'; leave this cut out"
        elif (crossing := self.crossing(ends[0])) != ends:
            values = ", ".join(f"'{_label(node)}'" for node in crossing)
            usable = ", ".join(self.usable_cuts(ends[0])) or "none, use the model without cuts"
            yield (
                f"after '{cut}' {len(crossing)} values are still used ({values}), not its output "
                f"alone; usable cuts nearby: {usable}"
            )

    def block_ends(self, cuts: Sequence[str]) -> dict[str, fx.Node]:
        """The last step of each block by its name, in order."""
        position, ends = self.position, dict[str, fx.Node]()
        for cut in sorted(cuts, key=lambda cut: position[self.outputs[cut][0]]):
            name, end = cut.replace(".", "_"), self.outputs[cut][0]
            if name in (*ends, "head") or end in ends.values():
                raise UserError(
                    f"cut '{cut}' has the name or the position of another block; leave it out"
                )
            ends[name] = end
        return {**ends, "head": self.output}

    def block(self, model: nn.Module, start: fx.Node, end: fx.Node) -> nn.Module:
        """The steps after `start` up to `end`, as a module that holds the model's own layers."""
        graph = fx.Graph()
        copies = {start: graph.placeholder("x")}

        def copied(node: fx.Node) -> fx.Node:
            if node not in copies:  # a weight: at a valid cut nothing else comes from outside
                copies[node] = graph.node_copy(node)
            return copies[node]

        position = self.position
        for node in self.steps[position[start] + 1 : position[end] + 1]:
            if node.op != "get_attr":
                copies[node] = graph.node_copy(node, copied)
        graph.output(copied(end))
        return fx.GraphModule(model, graph)


def _label(node: fx.Node) -> Any:
    return node.target if node.op == "call_module" else node.name


def _traced(model: nn.Module, cuts: Sequence[str]) -> _Graph:
    """The graph of the forward pass, which must be the same in training and evaluation mode."""
    names = [name for name, _ in model.named_modules() if name]
    for cut in cuts:
        if cut not in names:
            raise unknown_name("module", cut, names)
    graphs = []
    for training in (True, False):
        with _mode(model, training):
            graphs.append(_trace(model, cuts))
    in_training, in_evaluation = graphs
    if str(in_training.steps[0].graph) != str(in_evaluation.steps[0].graph):
        raise UserError(
            f"{type(model).__name__}.forward does different things in training and in evaluation; "
            "use layers such as nn.Dropout instead of functions that read self.training, "
            "or use the model without cuts"
        )
    return in_training


def _trace(model: nn.Module, cuts: Sequence[str]) -> _Graph:
    """Trace one forward pass in the current mode."""
    tracer = _Tracer(cuts)
    try:
        graph = tracer.trace(model, _default_inputs(model))
    except Exception as error:  # tracing user code can fail in any way
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(
            f"{type(model).__name__}.forward cannot be traced ({why}); keep branches and loops "
            "over data inside submodules that are not cut, or use the model without cuts"
        ) from error
    first, *extra_inputs = [n for n in graph.nodes if n.op == "placeholder"]
    (last,) = [n for n in graph.nodes if n.op == "output"]
    ignored = _dependents(graph, extra_inputs)
    if last in ignored or not isinstance(last.args[0], fx.Node):
        raise UserError(
            f"{type(model).__name__}.forward must take one tensor and return one; "
            "wrap it in a module that does"
        )
    steps = [n for n in graph.nodes if n not in ignored]
    return _Graph(steps, tracer.outputs, first, last.args[0])


def _default_inputs(model: nn.Module) -> dict[str, Any] | None:
    """The defaults of the inputs after the first; None if there are none."""
    others = list(inspect.signature(model.forward).parameters.values())[1:]
    return {p.name: p.default for p in others if p.default is not p.empty} or None


def _dependents(graph: fx.Graph, inputs: Sequence[fx.Node]) -> set[fx.Node]:
    """Inputs that keep their default, and what fx computes from them: assertions of the default."""
    dependents = set(inputs)
    for node in graph.nodes:
        if dependents.intersection(node.all_input_nodes):
            dependents.add(node)
    return dependents


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
        torch.random.fork_rng(devices=range(torch.cuda.device_count())),
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
