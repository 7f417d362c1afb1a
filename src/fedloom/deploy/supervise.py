"""Keep processes running until the user stops them: what dies is started again."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

from fedloom.core.errors import RunError
from fedloom.deploy.processes import Process, stop_all

POLL_SECONDS = 0.2
LONGEST_PAUSE = 15.0  # seconds before another attempt
CALM_SECONDS = 120.0  # a process that ran for this long is started again without a pause

Say = Callable[[str], None]
Start = Callable[[], Process]


class Supervisor:
    """Processes by name, in the order in which they are started.

    is_hopeless: the error if it is no use to start a process again; None if it may help.
    """

    def __init__(
        self,
        starts: Mapping[str, Start],
        say: Say,
        is_hopeless: Callable[[Process], Exception | None] = lambda process: None,
    ) -> None:
        self.starts, self.say, self.is_hopeless = dict(starts), say, is_hopeless
        self.running: dict[str, Process] = {}
        self.began: dict[str, float] = {}
        self.pauses = dict.fromkeys(starts, 1.0)
        self.due: dict[str, float] = {}  # when to start again what has ended

    def __enter__(self) -> Supervisor:
        try:
            for name in self.starts:
                self._start(name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        stop_all(self.running.values())

    def ask_to_end(self) -> None:
        """Ask all processes to end, without waiting for them."""
        for process in self.running.values():
            process.ask_to_end()

    def watch(self, until: Callable[[], bool]) -> None:
        """Start again what ends, until the function says so."""
        while not until():
            self.look()
            time.sleep(POLL_SECONDS)

    def look(self) -> None:
        """Look once after every process."""
        now = time.monotonic()
        for name, process in list(self.running.items()):
            if process.exit_code is not None:
                self._ended(name, process, now)
        for name in [name for name, time_due in self.due.items() if time_due <= now]:
            del self.due[name]
            try:
                self._start(name)
            except RunError as error:  # it did not get ready; the first time, this ends the command
                self._start_later(name, str(error))

    def _start(self, name: str) -> None:
        self.running[name] = self.starts[name]()
        self.began[name] = time.monotonic()

    def _ended(self, name: str, process: Process, now: float) -> None:
        del self.running[name]
        process.stop()  # what it started may be left
        if (reason := self.is_hopeless(process)) is not None:
            raise reason
        if now - self.began[name] > CALM_SECONDS:
            self.pauses[name] = 1.0
        code = f"exit code {process.exit_code} (log: {process.log})"
        self._start_later(name, f"{process.name} ended with {code}")

    def _start_later(self, name: str, reason: str) -> None:
        pause = self.pauses[name]
        self.due[name] = time.monotonic() + pause
        self.say(f"{reason}; it is started again in {pause:.0f} s")
        self.pauses[name] = min(2 * pause, LONGEST_PAUSE)


@contextmanager
def until_stopped() -> Iterator[Callable[[], bool]]:
    """Inside, Ctrl-C, SIGTERM and a closed terminal are only noted; the function says whether."""
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        received.append(number)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, note) for number in numbers}
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
