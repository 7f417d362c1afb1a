"""Ctrl-C: once finishes the round and stops, twice drops it; either way the last round is safe."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def graceful_interrupt(say: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """Inside, the first Ctrl-C or SIGTERM is only noted; the yielded function returns whether."""
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)
        say("finishing this round; press Ctrl-C again to drop it")

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
