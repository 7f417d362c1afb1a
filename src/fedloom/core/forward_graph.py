"""The forward pass of a module as a graph of steps, and where it can be cut."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

from fedloom.core.chain import is_reserved
from fedloom.core.determinism import fork_rng
from fedloom.core.errors import UserError
from fedloom.core.model_output import tensor_of


class _Tracer(fx.Tracer):
    """Traces into modules that contain a cut, and records the output of every module it meets."""

    def __init__(self, cuts: Sequence[str]) -> None:
        super().__init__()
        self.inside = {cut[:i] for cut in cuts for i, letter in enumerate(cut) if letter == "."}
        self.outputs: dict[str, list[fx.Node]] = {}

    def create_args_for_root(
        self, root_fn: Any, is_module: bool, concrete_args: Any = None
    ) -> tuple[Callable[..., Any], list[Any]]:
        """Call forward with one input, as a chain does, and take the logits of what it returns."""

        def forward(model: nn.Module, x: Any) -> Any:
            # the hooks of the model and its forward; to call the model would make it one step
            return tensor_of(model._call_impl(x))  # type: ignore[no-untyped-call]

        return forward, [self.root, self.create_proxy("placeholder", "x", (), {})]

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
class ForwardGraph:
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
        """The modules whose output is all that later steps use, with the step that gives it."""
        ends = {
            name: nodes[0]
            for name, nodes in self.outputs.items()
            if len(nodes) == 1 and nodes[0] is not self.output
        }
        return {
            name: node
            for name, node in ends.items()
            if self.crossing(node) == [node] and not _is_taken_apart(node)
        }

    def usable_cuts(self, near: fx.Node) -> list[str]:
        """The three valid cuts nearest to a step."""
        position, ends = self.position, self.valid_cuts()
        return sorted(ends, key=lambda name: abs(position[ends[name]] - position[near]))[:3]

    def all_usable_cuts(self, model: nn.Module) -> list[str]:
        """The valid cuts in order, except those before a layer that overwrites its input."""

        def overwritten(node: fx.Node) -> bool:
            return any(_overwrites(model, user) for user in node.users)

        position, ends = self.position, self.valid_cuts()
        by_step = {node: name for name, node in ends.items() if not overwritten(node)}
        return [by_step[node] for node in sorted(by_step, key=lambda node: position[node])]

    def shares_weights(self, model: nn.Module, cut: fx.Node) -> bool:
        """Whether a weight or a buffer is used both up to this step and after it."""
        used = [_tensors_of(model, node) for node in self.steps]
        after = self.position[cut] + 1
        return not set[int]().union(*used[:after]).isdisjoint(set[int]().union(*used[after:]))

    def problems(self, cut: str) -> Iterator[str]:
        """Why the model cannot be cut after this module."""
        ends = self.outputs.get(cut, [])
        if len(ends) != 1:
            yield (
                f"'{cut}' returns a tensor {len(ends)} times in a forward pass, not once; "
                "cut after another module"
            )
        elif ends[0] is self.output:
            yield f"nothing follows '{cut}'; leave this cut out"
        elif _is_taken_apart(ends[0]):
            yield f"'{cut}' returns several values, not one tensor; {self._cuts_nearby(ends[0])}"
        elif (crossing := self.crossing(ends[0])) != ends:
            values = ", ".join(f"'{_label(node)}'" for node in crossing)
            yield (
                f"after '{cut}' {len(crossing)} values are still used ({values}), not its output "
                f"alone; {self._cuts_nearby(ends[0])}"
            )

    def _cuts_nearby(self, step: fx.Node) -> str:
        usable = ", ".join(self.usable_cuts(step)) or "none, use the model without cuts"
        return f"usable cuts nearby: {usable}"

    def block_ends(self, cuts: Sequence[str]) -> dict[str, fx.Node]:
        """The last step of each block by its name, in order."""
        position, ends = self.position, dict[str, fx.Node]()
        for cut in sorted(cuts, key=lambda cut: position[self.outputs[cut][0]]):
            name, end = cut.replace(".", "_"), self.outputs[cut][0]
            if is_reserved(name):
                name += "_"
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
        return _saving_as(model, fx.GraphModule(model, graph))


def _saving_as(model: nn.Module, block: nn.Module) -> nn.Module:
    """The block, with those of its buffers not saved that the model does not save.

    A GraphModule saves all that it holds itself, also constants that the trace has found.
    """
    saved = model.state_dict(keep_vars=True)
    for name, buffer in [*block.named_buffers()]:
        if name not in saved:
            module, _, attribute = name.rpartition(".")
            block.get_submodule(module).register_buffer(attribute, buffer, persistent=False)
    return block


def _overwrites(model: nn.Module, step: fx.Node) -> bool:
    """Whether a step changes its input in place: nn.ReLU(inplace=True), F.relu_(x), x.relu_()."""
    if step.op == "call_module":
        return bool(getattr(model.get_submodule(str(step.target)), "inplace", False))
    name = getattr(step.target, "__name__", str(step.target))
    return bool(step.kwargs.get("inplace")) or (name.endswith("_") and not name.endswith("__"))


def _tensors_of(model: nn.Module, step: fx.Node) -> set[int]:
    """The ids of the weights and buffers that a step uses."""
    if step.op == "call_module":
        held = model.get_submodule(str(step.target)).state_dict(keep_vars=True)
        return {id(tensor) for tensor in held.values()}
    return {id(operator.attrgetter(str(step.target))(model))} if step.op == "get_attr" else set()


def _label(node: fx.Node) -> Any:
    return node.target if node.op == "call_module" else node.name


def trace(model: nn.Module, cuts: Sequence[str]) -> ForwardGraph:
    """Trace one forward pass in the current mode; inputs after the first keep their defaults."""
    name, tracer = type(model).__name__, _Tracer(cuts)
    if _required_inputs(model) > 1:
        raise UserError(
            f"{name}.forward must take one tensor and return one; wrap it in a module that does"
        )
    try:
        with _traced_constructors(), _nothing_but_steps(model):
            graph = tracer.trace(model)
    except Exception as error:  # tracing user code can fail in any way
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(
            f"{name}.forward cannot be traced ({why}); keep branches and loops "
            "over data inside submodules that are not cut, or use the model without cuts"
        ) from error
    (first,) = [n for n in graph.nodes if n.op == "placeholder"]
    (last,) = [n for n in graph.nodes if n.op == "output"]
    outputs = {name: [_tensor_step(n) for n in ends] for name, ends in tracer.outputs.items()}
    return ForwardGraph(list(graph.nodes), outputs, first, last.args[0])


@contextmanager
def _nothing_but_steps(model: nn.Module) -> Iterator[None]:
    """Raise if tracing draws random numbers or writes to a tensor of the model.

    These are no steps of the graph: blocks would draw once and never again, or write nothing.
    """
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    versions = {n: t._version for n, t in tensors.items() if not t.is_inference()}
    with fork_rng():
        draws = torch.get_rng_state()
        yield
        if not draws.equal(torch.get_rng_state()):
            raise UserError("it draws random numbers whose number does not depend on the input")
    if written := [n for n, version in versions.items() if tensors[n]._version != version]:
        raise UserError(f"it writes to '{written[0]}'")


def _tensor_step(node: fx.Node) -> fx.Node:
    """The step that gives the tensor: out[0], if nothing else of a module's output is used."""
    used = [user for user in node.users if user.users]
    if len(used) == 1 and used[0].target is operator.getitem and used[0].args[1] == 0:
        return used[0]
    return node


def _is_taken_apart(node: fx.Node) -> bool:
    """Whether later steps take values out of an output, as of a tuple or an object with logits."""

    def takes(user: fx.Node) -> bool:
        if user.target is operator.getitem:
            return isinstance(user.args[1], (int, str))
        return user.target is getattr and not hasattr(torch.Tensor, str(user.args[1]))

    return any(takes(user) for user in node.users)


def _required_inputs(model: nn.Module) -> int:
    inputs = inspect.signature(model.forward).parameters.values()
    named = [p for p in inputs if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return sum(p.default is p.empty for p in named)


@contextmanager
def _traced_constructors() -> Iterator[None]:
    """Lets torch.arange(x.shape[1]) and the like be traced, as positions in a text need it."""

    def recorded(make: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            proxies = [a for a in (*args, *kwargs.values()) if isinstance(a, fx.Proxy)]
            if not proxies:
                return make(*args, **kwargs)
            return proxies[0].tracer.create_proxy("call_function", make, args, kwargs)

        return call

    originals = {name: getattr(torch, name) for name in ("arange", "zeros", "ones", "full")}
    try:
        for name, make in originals.items():
            setattr(torch, name, recorded(make))
        yield
    finally:
        for name, make in originals.items():
            setattr(torch, name, make)
