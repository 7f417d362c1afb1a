"""All engines by name. Importable without torch: an engine's own module is imported when it opens.

A new engine is one module in this folder with a function `open(workload)`, and one line in ENGINES.
"""

from __future__ import annotations

import importlib
import os
import platform
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedloom.core.errors import UserError, unknown_name

if TYPE_CHECKING:
    from fedloom.core.federation import Federation
    from fedloom.core.simulation import Engine
    from fedloom.engines.workload import Workload

AUTO = "auto"  # not an engine: choose one for the run (engines/choose.py)


@dataclass(frozen=True)
class EngineEntry:
    """An engine that has not been imported yet.

    label             its name in the middle of a sentence
    loader            "module:function"; the function takes a Workload and returns the federation as
                      this process sees it from then on, and the open engine
    exact             results have the same bits as those of the in-process engine
    cpu_only          cannot run on a GPU
    uses_workers      runs clients in other processes, which import everything they need by name
    uses_fork_server  takes its workers from a fork server (engines/forkserver.py)
    """

    name: str
    label: str
    summary: str
    loader: str
    exact: bool = True
    cpu_only: bool = False
    uses_workers: bool = False
    uses_fork_server: bool = False

    @property
    def available(self) -> bool:
        """Whether this system can run it: a fork server needs os.fork, which Windows lacks."""
        return not self.uses_fork_server or hasattr(os, "fork")

    def open(self, workload: Workload) -> tuple[Federation, Engine]:
        """Import the engine and open it for the workload."""
        module, _, function = self.loader.partition(":")
        open_engine = getattr(importlib.import_module(module), function)
        opened: tuple[Federation, Engine] = open_engine(workload)
        return opened


_ENTRIES = (
    EngineEntry(
        "inprocess",
        "the in-process engine",
        "clients one after the other in this process, on one thread",
        "fedloom.engines.inprocess:open",
    ),
    EngineEntry(
        "pool",
        "the pool",
        "clients in parallel, in worker processes on this machine",
        "fedloom.engines.pool:open",
        uses_workers=True,
        uses_fork_server=True,
    ),
    EngineEntry(
        "vectorised",
        "the vectorised engine",
        "many clients in one call through torch.func.vmap; fast for small models",
        "fedloom.engines.vectorised:open",
        exact=False,
    ),
    EngineEntry(
        "ray",
        "Ray",
        "clients in parallel, in workers on a Ray cluster",
        "fedloom.engines.ray:open",
        cpu_only=True,
        uses_workers=True,
    ),
)
ENGINES = {entry.name: entry for entry in _ENTRIES}
CHOICES = (AUTO, *ENGINES)  # for the setting `engine`


def entry(name: str) -> EngineEntry:
    """The engine of that name; UserError if there is none."""
    if name not in ENGINES:
        raise unknown_name("engine", name, CHOICES)
    return ENGINES[name]


def check_name(name: str) -> str:
    """The name, if it is "auto" or an engine; else a UserError that lists the choices."""
    return name if name == AUTO else entry(name).name


def check_available(name: str) -> None:
    """Raise UserError for an engine that this system cannot run."""
    if name != AUTO and not entry(name).available:
        raise UserError(
            f"engine '{name}' forks its workers, which {platform.system() or 'this system'} cannot "
            "do; use --engine inprocess, which gives the same bits, or --engine ray"
        )
