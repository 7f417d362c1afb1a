"""Start a fork server before the settings are read, so that it imports torch while we do."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fedloom.engines.registry import ENGINES

if TYPE_CHECKING:
    from fedloom.engines.forkserver import ForkServer


@contextmanager
def prefork(engine: str | None) -> Iterator[ForkServer | None]:
    """A fork server for the runs of a command, closed at the end; None where there is no os.fork.

    It starts at once if --engine names an engine that uses it and torch is still to be imported
    here. It does not for "auto": if that chooses another engine, the second import is wasted, and
    it slows the first one down.
    """
    if not ENGINES["pool"].available:
        yield None
        return
    from fedloom.engines.forkserver import ForkServer

    fork_server = ForkServer("fedloom.experiment.open_engine")
    try:
        entry = ENGINES.get(engine or "")
        if entry is not None and entry.uses_fork_server and "torch" not in sys.modules:
            fork_server.start()
        yield fork_server
    finally:
        fork_server.close()
