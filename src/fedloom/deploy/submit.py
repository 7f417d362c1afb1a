"""`fedloom deploy run`: hand the app to Flower, then show what the ServerApp does with it.

`flwr run` takes 2 s on a quiet machine, the start of the ServerApp as long again. A ServerApp that
is killed is reported by Flower 44 s later, and a run that Flower has given up cannot be continued
there; so its process is watched here, and a run that stopped is submitted again as a new Flower
run. It resumes from its last checkpoint, since a run is known by its folder, not by Flower's id.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from fedloom.core.errors import RunError, UserError, shown_text
from fedloom.deploy.layout import ServerFolder, check_site_names
from fedloom.deploy.processes import environment, last_lines
from fedloom.deploy.run_control import RunControl, RunState
from fedloom.deploy.server import is_healthy, write_connection

START_SECONDS = 180.0
POLL_SECONDS = 0.3

Say = Callable[[str], None]


def control_of(folder: ServerFolder, run: str) -> RunControl:
    """The control files of a run."""
    return RunControl(folder.path / "control", run)


def check_run_name(run: str) -> None:
    """Raise for a run that cannot be the name of a folder."""
    try:
        check_site_names((run,))
    except UserError:
        raise UserError(
            f"run '{shown_text(run)}' cannot be the name of a folder; begin with a letter, then "
            "letters, digits, - and _, at most 40 characters"
        ) from None


def submit(folder: ServerFolder, run: str) -> str:
    """Start the run at the server, or resume it; the word that tells this attempt from others."""
    if not is_healthy(folder):
        raise UserError(
            f"the server does not answer on 127.0.0.1:{folder.address.port}; start it on this "
            f"machine with: fedloom deploy server {folder.path.parent}"
        )
    control_of(folder, run).forget_stop()
    write_connection(folder)
    submission = secrets.token_hex(8)
    command = [
        str(Path(sys.executable).parent / "flwr"),
        *("run", str(folder.app), "here", "--format", "json"),
        *("--run-config", f'run="{run}" submission="{submission}"'),
    ]
    done = subprocess.run(
        command, env=environment(folder.flower), capture_output=True, text=True, check=False
    )
    if done.returncode or not _succeeded(done.stdout):
        raise RunError(f"Flower refused the run:\n{(done.stdout + done.stderr).strip()}")
    return submission


def _succeeded(output: str) -> bool:
    try:
        return bool(json.loads(output)["success"])
    except (ValueError, KeyError, TypeError):
        return False


class Follower:
    """Shows a run while it goes on. look: called again and again, to show new rounds."""

    def __init__(self, folder: ServerFolder, run: str, say: Say, look: Callable[[], None]) -> None:
        self.folder, self.control, self.say, self.look = folder, control_of(folder, run), say, look
        _, self.position = self.control.messages()
        self.on_poll: Callable[[], None] = lambda: None

    def follow(self, submission: str | None) -> RunState:
        """Wait for the end of the run. submission: None if it was running already.

        If another attempt follows ours at once, its end is the end of the run.
        """
        deadline = time.monotonic() + START_SECONDS
        while True:
            begun = submission is None or self.control.has_begun(submission)
            state = self.control.read()  # after the other: so it is ours, or that of a later one
            ours = state is not None and (begun or submission == state.submission)
            self.on_poll()
            self.show()
            if state is not None and ours:
                if state.has_ended:
                    self.show()
                    return state
                if not self.control.is_alive() and not self._ended_just_now(state):
                    raise RunError(self._died())
            elif time.monotonic() > deadline:
                raise RunError(f"the ServerApp did not start in {START_SECONDS:.0f} s;{self._log}")
            time.sleep(POLL_SECONDS)

    def show(self) -> None:
        """Show messages and rounds that are new."""
        messages, self.position = self.control.messages(self.position)
        for message in messages:
            self.say(message)
        self.look()

    def _ended_just_now(self, seen: RunState) -> bool:
        """It may have written its last state and ended after we read an earlier one."""
        return self.control.read() != seen

    def _died(self) -> str:
        return (
            "the ServerApp was killed, or crashed; the last checkpoint is safe: resume with the "
            f"same command;{self._log}"
        )

    @property
    def _log(self) -> str:
        log = self.folder.logs / "superlink.log"
        return f" the log '{log}' ends:\n{last_lines(log)}"
