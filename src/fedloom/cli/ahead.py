"""What a command begins before it knows its settings: a nursery that imports torch while this process does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from fedloom.engines.nursery import Nursery


@contextmanager
def ahead(engine: str | None) -> Iterator[Nursery]:
    """A nursery for the runs of a command. It begins at once if a pool is asked for and torch still to be imported here.

    Not for "auto": where that comes to no pool, the second import would be in vain, and it slows the first one down.
    """
    nursery = Nursery("fedloom.study.engines")
    try:
        if engine == "pool" and "torch" not in sys.modules:
            nursery.start()
        yield nursery
    finally:
        nursery.close()
