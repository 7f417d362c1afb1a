"""A chain of any torch model, where its graph is a line."""

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
    """The model as a chain, cut behind the modules named in `cuts`; its weights are the model's own tensors.

    Without cuts it is one block, `model`. Else every block has the name of the cut that ends it, with _ for dots, and the last
    is `head`. With an example batch the chain is proved to equal the model bit for bit, in evaluation and in training.

    >>> net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> cut(net, cuts=["1"], example=torch.ones(2, 4)).names
    ('1', 'head')
    """
    if not cuts:
        return model if isinstance(model, Chain) else Chain({"model": model})
    line = _follow(model, cuts)
    raise_all(
        (c for cut in cuts for c in line.complaints(cut)),
        f"{type(model).__name__} is no line there",
    )
    blocks: dict[str, nn.Module] = {}
    start = line.input
    for name, end in line.ends(cuts).items():
        blocks[name] = line.block(model, start, end)
        start = end
    chain = Chain(blocks)
    raise_all(_shared(chain), f"{type(model).__name__} cannot be cut there")
    if example is not None:
        _prove(model, chain, example)
    return chain


class _Tracer(fx.Tracer):
    """Looks only into modules that hold a cut, and notes what every module it meets gives."""

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
class _Line:
    """The steps of a forward pass in their order, and which of them end a module."""

    steps: list[fx.Node]
    outputs: dict[str, list[fx.Node]]
    input: fx.Node
    output: fx.Node

    @property
    def position(self) -> dict[fx.Node, int]:
        return {node: i for i, node in enumerate(self.steps)}

    def crossing(self, cut: fx.Node) -> list[fx.Node]:
        """What is made up to the cut and used behind it; weights do not count, every block fetches its own."""
        position = self.position
        here = position[cut]
        before = [n for n in self.steps[: here + 1] if n.op != "get_attr"]
        return [n for n in before if any(position.get(user, here) > here for user in n.users)]

    def usable(self, near: fx.Node) -> list[str]:
        """The three cuts nearest to a step over which one tensor goes."""
        position = self.position
        ends = {
            name: nodes[0]
            for name, nodes in self.outputs.items()
            if len(nodes) == 1 and nodes[0] is not self.output
        }
        clean = [name for name, node in ends.items() if self.crossing(node) == [node]]
        return sorted(clean, key=lambda name: abs(position[ends[name]] - position[near]))[:3]

    def complaints(self, cut: str) -> Iterator[str]:
        """Why the model cannot be cut behind this module, if so."""
        ends = self.outputs.get(cut, [])
        if len(ends) != 1:
            yield f"'{cut}' gives a tensor {len(ends)} times in a forward pass, not once; cut behind another module"
        elif ends[0] is self.output:
            yield f"behind '{cut}' nothing is left; leave this cut out"
        elif (crossing := self.crossing(ends[0])) != ends:
            what = ", ".join(f"'{n.target if n.op == 'call_module' else n.name}'" for n in crossing)
            remedy = ", ".join(self.usable(ends[0])) or "none, use the model without cuts"
            yield f"behind '{cut}' {len(crossing)} values go on ({what}), not its output alone; usable cuts nearby: {remedy}"

    def ends(self, cuts: Sequence[str]) -> dict[str, fx.Node]:
        """The names of the blocks in order, and the last step of each."""
        position, ends = self.position, dict[str, fx.Node]()
        for cut in sorted(cuts, key=lambda cut: position[self.outputs[cut][0]]):
            name, end = cut.replace(".", "_"), self.outputs[cut][0]
            if name in (*ends, "head") or end in ends.values():
                raise UserError(
                    f"cut '{cut}' has the name or the place of another block; leave it out"
                )
            ends[name] = end
        return {**ends, "head": self.output}

    def block(self, model: nn.Module, start: fx.Node, end: fx.Node) -> nn.Module:
        """The steps behind `start` up to `end` as a module that holds the model's own layers under their names."""
        graph = fx.Graph()
        copies = {start: graph.placeholder("x")}

        def copied(node: fx.Node) -> fx.Node:
            if node not in copies:  # only weights are left: a clean cut lets nothing else in
                copies[node] = graph.node_copy(node)
            return copies[node]

        position = self.position
        for node in self.steps[position[start] + 1 : position[end] + 1]:
            if node.op != "get_attr":
                copies[node] = graph.node_copy(node, copied)
        graph.output(copied(end))
        return fx.GraphModule(model, graph)


def _follow(model: nn.Module, cuts: Sequence[str]) -> _Line:
    """The line of the model, the same in training and in evaluation."""
    names = [name for name, _ in model.named_modules() if name]
    for cut in cuts:
        if cut not in names:
            raise unknown_name("module", cut, names)
    lines = []
    for training in (True, False):
        with _mode(model, training):
            lines.append(_trace(model, cuts))
    if str(lines[0].steps[0].graph) != str(lines[1].steps[0].graph):
        raise UserError(
            f"{type(model).__name__}.forward does different things in training and in evaluation; "
            "use layers such as nn.Dropout instead of functions that ask self.training, or use the model without cuts"
        )
    return lines[0]


def _trace(model: nn.Module, cuts: Sequence[str]) -> _Line:
    tracer = _Tracer(cuts)
    others = list(inspect.signature(model.forward).parameters.values())[1:]
    defaults = {p.name: p.default for p in others if p.default is not p.empty}
    try:
        graph = tracer.trace(model, defaults or None)
    except Exception as error:  # a forward that is fed with symbols can fail in any way
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(
            f"{type(model).__name__}.forward cannot be followed ({why}); keep branches and loops over data inside "
            "submodules that are not cut, or use the model without cuts"
        ) from error
    (first, *extras), (last,) = (
        [n for n in graph.nodes if n.op == op] for op in ("placeholder", "output")
    )
    aside = set(extras)  # inputs that keep their default, and fx's assertions of it
    for node in graph.nodes:
        if aside.intersection(node.all_input_nodes):
            aside.add(node)
    if last in aside or not isinstance(last.args[0], fx.Node):
        raise UserError(
            f"{type(model).__name__}.forward must take one tensor and give one; wrap it in a module that does"
        )
    return _Line([n for n in graph.nodes if n not in aside], tracer.outputs, first, last.args[0])


def _shared(chain: Chain) -> Iterator[str]:
    owner: dict[int, str] = {}
    for block in chain.names:
        for name, tensor in chain.block(block).state_dict(keep_vars=True).items():
            if owner.setdefault(id(tensor), block) != block:
                yield f"blocks '{owner[id(tensor)]}' and '{block}' share '{name}'; cut where no weights are used on both sides"


def _prove(model: nn.Module, chain: Chain, example: Tensor) -> None:
    for training in (False, True):
        (expected, buffers), (found, after) = (
            _trial(run, example, model, training) for run in (model, chain)
        )
        if not all(
            torch.equal(a, b) for a, b in zip([expected, *buffers], [found, *after], strict=True)
        ):
            mode = "training" if training else "evaluation"
            raise UserError(
                f"the chain differs from {type(model).__name__} in {mode}; cut elsewhere or use the model without cuts"
            )
    with _mode(model, False), torch.no_grad():
        _check_taps(chain, example.clone())


def _check_taps(chain: Chain, x: Tensor) -> None:
    """Methods keep the output of every block: it must be a tensor, and the next block must leave it as it is."""
    for name in chain.names:
        written = x._version  # counts writes, also those that happen to change nothing
        out = chain.block(name)(x)
        if not isinstance(out, Tensor):
            raise UserError(
                f"block '{name}' gives a {type(out).__name__}, not one tensor; cut behind another module"
            )
        if x._version != written:
            raise UserError(
                f"block '{name}' begins with a layer that overwrites its input; cut behind that layer instead"
            )
        x = out


def _trial(
    run: nn.Module, example: Tensor, model: nn.Module, training: bool
) -> tuple[Any, list[Tensor]]:
    """What a forward pass gives, and what it leaves in the model's buffers, which are put back."""
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
                f"{type(model).__name__} cannot take the example of shape {tuple(example.shape)}: {error}"
            ) from error
        finally:
            for buffer, value in zip(model.buffers(), before, strict=True):
                buffer.copy_(value)


@contextmanager
def _mode(model: nn.Module, training: bool) -> Iterator[None]:
    """All layers in training or in evaluation, and afterwards each as it was."""
    before = {module: module.training for module in model.modules()}
    model.train(training)
    try:
        yield
    finally:
        for module, was in before.items():
            module.training = was
