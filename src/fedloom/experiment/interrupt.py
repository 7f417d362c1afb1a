"""Ctrl-C: once finishes the round and stops, twice drops it. Either way the last whole round is safe."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def graceful_interrupt(say: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """Inside, the first Ctrl-C (or termination) is only noted; the yielded function tells whether there was one."""
    asked: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        say("finishing this round; Ctrl-C again drops it")

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
