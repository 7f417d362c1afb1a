"""The server's state as one flat dictionary of tensors, and the layout that leads back to it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from fedloom.core.errors import RunError
from fedloom.core.params import Params
from fedloom.core.state import ServerState


def weight_path(name: str) -> str:
    """The path of a tensor of the model."""
    return f"params/{name}"


def flattened(state: ServerState, without: Collection[str] = ()) -> Params:
    """All tensors by their paths, less these of the model. Raises if two paths are the same."""
    flat = state.tensors()
    groups = [state.params, *state.shared.values()]
    groups += [group for memory in state.memory.values() for group in memory.values()]
    if len(flat) < sum(len(group) for group in groups):
        raise RunError(
            "two tensors of the server have the same path; "
            "leave '/' out of the names of stages and exchanges"
        )
    for name in without:
        del flat[weight_path(name)]
    return flat


def layout_of(state: ServerState) -> dict[str, Any]:
    """The names of all tensors, nested as in the state and in order.

    Groups without tensors are listed too: a stage may begin with an empty memory.
    """
    memory = {
        stage: {name: list(group) for name, group in groups.items()}
        for stage, groups in state.memory.items()
    }
    return {
        "params": list(state.params),
        "shared": {name: list(group) for name, group in state.shared.items()},
        "memory": memory,
    }


def paths(layout: Mapping[str, Any]) -> Iterator[str]:
    """The paths of all tensors of a layout, as `ServerState.tensors` names them."""
    yield from map(weight_path, layout["params"])
    for key, names in layout["shared"].items():
        yield from (f"shared/{key}/{name}" for name in names)
    for stage, groups in layout["memory"].items():
        for key, names in groups.items():
            yield from (f"memory/{stage}/{key}/{name}" for name in names)


def unflattened(number: int, layout: Mapping[str, Any], flat: Mapping[str, Tensor]) -> ServerState:
    """The state from which `ServerState.tensors` made the flat dictionary."""

    def group(path: str, names: Sequence[str]) -> Params:
        return {name: flat[f"{path}/{name}"] for name in names}

    memory = {
        stage: {key: group(f"memory/{stage}/{key}", names) for key, names in groups.items()}
        for stage, groups in layout["memory"].items()
    }
    shared = {key: group(f"shared/{key}", names) for key, names in layout["shared"].items()}
    return ServerState(number, group("params", layout["params"]), memory, shared)
