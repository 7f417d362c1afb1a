"""Files by which the ServerApp and `fedloom deploy run` tell each other about a run.

The ServerApp is started by Flower, so the command that submitted it is not its parent and sees
neither its output nor its exit code. In DIR/server/control/, NAME.json has the state of the run
NAME, NAME.log its messages for the user, and NAME.stop asks it to stop after the current round.
NAME.lock is locked while the ServerApp lives. Its process id would not do: one that was killed
stays a zombie, since Flower's SuperExec does not wait for it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout

from fedloom.core.errors import UserError
from fedloom.deploy.layout import private_folder
from fedloom.runs.durable_files import PRIVATE_FILE, read_if_exists, write_durably

State = Literal["waiting", "running", "finished", "stopped", "failed"]
HOLD_SECONDS = 10.0  # another process may look for a moment whether the lock is free
ENDED: tuple[State, ...] = ("finished", "stopped", "failed")


@dataclass(frozen=True)
class RunState:
    """What the ServerApp says of itself.

    submission: a word chosen by its submitter, to tell this attempt from an earlier one.
    message, exit_code: what the command is to print and to return, if the run failed.
    """

    state: State
    pid: int
    submission: str = ""
    message: str = ""
    exit_code: int = 0

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED


class RunControl:
    """The files of one run."""

    def __init__(self, folder: Path, name: str) -> None:
        private_folder(folder)
        self.name = name
        self._state, self._log, self._stop, self._lock = (
            folder / f"{name}.{suffix}" for suffix in ("json", "log", "stop", "lock")
        )
        self._submissions = folder / f"{name}.submissions"

    def write(self, state: RunState) -> None:
        write_durably(self._state, json.dumps(asdict(state)).encode())

    def read(self) -> RunState | None:
        """The state; None before the first one."""
        try:
            return RunState(**json.loads(self._state.read_bytes()))
        except FileNotFoundError:
            return None

    @contextmanager
    def held(self) -> Iterator[None]:
        """For the ServerApp, as long as it lives; one at a time."""
        lock = FileLock(self._lock, timeout=HOLD_SECONDS, mode=PRIVATE_FILE)
        try:
            lock.acquire()
        except Timeout:
            raise UserError(
                f"run '{self.name}' is going on already; follow it with: fedloom deploy run"
            ) from None
        try:
            yield
        finally:
            lock.release()

    def begin(self, state: RunState) -> None:
        """Write the first state of an attempt; raises if it was made before: a replay does nothing.

        Without a word of its own, as from `flwr run` by hand, an attempt is always a new one.
        """
        if state.submission and self.has_begun(state.submission):
            raise UserError(
                f"run '{self.name}': this attempt has been submitted before and is not repeated; "
                "start or resume it with: fedloom deploy run"
            )
        self.write(state)
        _append(self._submissions, state.submission)

    def has_begun(self, submission: str) -> bool:
        """Whether this attempt was made. If the state is of another one, it has ended since."""
        begun = read_if_exists(self._submissions) or b""
        return submission in begun.decode().splitlines()

    def is_alive(self) -> bool:
        """Whether a ServerApp works on the run; it may have been killed without a word."""
        state = self.read()
        if state is None or state.has_ended:
            return False
        try:
            with FileLock(self._lock, timeout=0, mode=PRIVATE_FILE):
                return False
        except Timeout:
            return True

    def say(self, text: str) -> None:
        """Append a message for the user."""
        _append(self._log, text)

    def messages(self, start: int = 0) -> tuple[list[str], int]:
        """The complete messages from a position in the log on, and the position after them."""
        try:
            with self._log.open("rb") as file:
                file.seek(start)
                new = file.read()
        except FileNotFoundError:
            return [], start
        complete = new[: new.rfind(b"\n") + 1]
        return complete.decode(errors="replace").splitlines(), start + len(complete)

    def ask_to_stop(self) -> None:
        self._stop.touch(PRIVATE_FILE)

    def forget_stop(self) -> None:
        self._stop.unlink(missing_ok=True)

    def should_stop(self) -> bool:
        return self._stop.exists()


def _append(file: Path, text: str) -> None:
    """Add a line to a file."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    with os.fdopen(os.open(file, flags, PRIVATE_FILE), "a", encoding="utf-8") as lines:
        lines.write(" ".join(text.splitlines()) + "\n")
