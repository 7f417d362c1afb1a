"""Where a model is cut into blocks by default: between its layers with weights."""

from __future__ import annotations

from collections.abc import Iterator

from torch import fx, nn

from fedloom.core.errors import UserError
from fedloom.core.forward_graph import ForwardGraph, trace
from fedloom.core.select import NORMS

MOST_BLOCKS = 6  # as many as ResNet-18 has: stem, four stages and head
# what to do with a model that cannot be cut
WRITE_CHAIN = "write it as fedloom.Chain({'features': MODULE, 'head': MODULE})"
_DEPTH = 4  # how many levels of nested modules are opened in search of cuts


def automatic_cuts(model: nn.Module) -> list[str]:
    """Modules after which to cut: a block is a layer with weights and what follows it without.

    Layers are the modules that forward calls itself; of a transformer, those in its ModuleList.
    More than MOST_BLOCKS are joined. Empty if forward cannot be traced or has no place to cut.

    >>> layers = nn.Linear(4, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 2)
    >>> automatic_cuts(nn.Sequential(*layers))
    ['2']
    """
    for opened in _ways_to_look(model):
        try:
            graph = trace(model, [f"{name}." for name in opened])
        except UserError:
            continue  # it may still be traced without looking into these modules
        if places := _between_layers(model, graph):
            return _spread(places, MOST_BLOCKS - 1)
    return []


def _ways_to_look(model: nn.Module) -> Iterator[list[str]]:
    """Lists of modules to open, in turn: those around a stack of layers, none, then ever deeper."""
    if stacks := _around_stacks(model):
        yield stacks
    names = [name for name, module in model.named_modules() if name and [*module.children()]]
    for depth in range(_DEPTH):
        yield [name for name in names if name.count(".") < depth]


def _around_stacks(model: nn.Module) -> list[str]:
    """The modules that hold a ModuleList of equal layers, as a transformer does."""
    opened: list[str] = []
    inside: tuple[str, ...] = ()  # stacks found so far; those within their layers are left alone
    for name, module in model.named_modules():
        kinds = {type(child) for child in module.children()}
        is_stack = isinstance(module, nn.ModuleList) and len(module) > 1 and len(kinds) == 1
        if is_stack and not name.startswith(inside):
            inside = (*inside, f"{name}.")
            parts = name.split(".")
            opened += [".".join(parts[:end]) for end in range(1, len(parts))]
    return list(dict.fromkeys(opened))


def _between_layers(model: nn.Module, graph: ForwardGraph) -> list[str]:
    """The last usable place before each layer but the first."""
    ends, position = graph.valid_cuts(), graph.position
    usable = [
        name
        for name in graph.all_usable_cuts(model)
        if name != "head" and not graph.shares_weights(model, ends[name])
    ]
    starts = [position[ends[name]] + 1 for name in usable]
    pieces = zip([0, *starts], [*starts, len(graph.steps)], strict=True)
    layers = [any(_has_weights(model, n) for n in graph.steps[a:b]) for a, b in pieces]
    return [name for i, name in enumerate(usable) if layers[i + 1] and any(layers[: i + 1])]


def _has_weights(model: nn.Module, step: fx.Node) -> bool:
    """Whether a step is a call of a module with weights other than those of norms."""
    if step.op != "call_module":
        return False
    parts = model.get_submodule(str(step.target)).modules()
    return any([*m.parameters(recurse=False)] for m in parts if not isinstance(m, NORMS))


def _spread(places: list[str], count: int) -> list[str]:
    """At most `count` of the places, evenly, the first and the last among them."""
    if len(places) <= count:
        return places
    last = len(places) - 1
    return [places[i * last // (count - 1)] for i in range(count)]
