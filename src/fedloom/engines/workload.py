"""What an engine is opened with: the federation, and how another process can build the same one."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from fedloom.core import user_code
from fedloom.core.errors import RunError
from fedloom.core.federation import Federation
from fedloom.core.simulation import Engine
from fedloom.engines.wire import Facts

if TYPE_CHECKING:
    from fedloom.engines.forkserver import ForkServer


@dataclass(frozen=True)
class Recipe:
    """How another process builds the federation.

    build: "module:function" of a function that takes the message and the tensors and returns the
    Federation. settings: the settings as text. dataset: facts about the data set that are not
    tensors. tensors: the data, which an engine shares with its workers. devices: the GPUs that
    workers take in turn; none: they run on the CPU. deterministic: as in the settings.
    """

    build: str
    settings: str
    dataset: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    devices: tuple[str, ...] = ()
    deterministic: bool = True

    def message(self, **more: Any) -> Facts:
        """The recipe without its tensors, as JSON for a worker; `more` is what the engine adds."""
        return {
            "build": self.build,
            "settings": self.settings,
            "dataset": dict(self.dataset),
            "devices": self.devices,
            "deterministic": self.deterministic,
            "sys_path": _import_path(),
            "allowed": user_code.allowed(),
            **more,
        }


@dataclass(frozen=True)
class Workload:
    """All that any engine may need.

    rebuild: builds the federation again with the given memory layout. workers: the number of worker
    processes asked for; 0 leaves it to the engine. open_engine: an engine of an earlier run whose
    workers can be used again.
    """

    federation: Federation
    rebuild: Callable[[str], Federation]
    recipe: Recipe
    workers: int = 0
    fork_server: ForkServer | None = None
    open_engine: Engine | None = None


def build_federation(message: Facts, tensors: Mapping[str, Tensor]) -> Federation:
    """Follow a recipe, in a worker or in the server's process.

    User modules that the server's process can import can be imported here as well, and user code
    that it may run may run here.
    """
    _extend_path(message.get("sys_path", ()))
    user_code.allow(message.get("allowed", ()))
    federation: Federation = _own_function(message["build"])(message, tensors)
    return federation


def _own_function(reference: str) -> Callable[..., Any]:
    """A function of fedloom by its "module:function", which is not the user's to choose."""
    module, _, name = reference.partition(":")
    if not module.startswith("fedloom."):
        raise RunError(f"a recipe cannot be built by '{reference}', which is not part of fedloom")
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return function


def _extend_path(folders: Iterable[str]) -> None:
    """Append the folders that are missing in sys.path."""
    present = _import_path()
    sys.path.extend(folder for folder in folders if folder not in present)


def _import_path() -> list[str]:
    """sys.path with every folder absolute; an empty entry stands for the current folder."""
    return [str(Path(folder).absolute()) for folder in sys.path]


def usable_cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1
