"""What a command begins before it knows its settings: a nursery that imports torch while this process does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from fedloom.engines.forkserver import ForkServer


@contextmanager
def prefork(engine: str | None) -> Iterator[ForkServer]:
    """A nursery for the runs of a command. It begins at once if a pool is asked for and torch still to be imported here.

    Not for "auto": where that comes to no pool, the second import would be in vain, and it slows the first one down.
    """
    fork_server = ForkServer("fedloom.experiment.open_engine")
    try:
        if engine == "pool" and "torch" not in sys.modules:
            fork_server.start()
        yield fork_server
    finally:
        fork_server.close()
