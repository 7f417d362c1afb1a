"""Commands in other processes that start at once and can be killed at any moment."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli.talk import TINY, Said

KILLED = -9


@dataclass(frozen=True)
class Lived:
    """How a process ended, after how long, and what it had said by then."""

    status: int
    seconds: float
    said: Said


class Forks:
    """The near end of `fork_server.py`."""

    def __init__(self, server: "subprocess.Popen[str]", desk: Path) -> None:
        self._server, self._out, self._err = server, desk / "out", desk / "err"
        self._order(
            ["run", *TINY, "--method", "scaffold", "--rounds", "2", "--out", str(desk / "first")]
        )

    def _order(self, order: Any) -> None:
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps(order) + "\n")
        self._server.stdin.flush()

    def __call__(
        self, *words: object, kill_after: float | None = None, die_at_line: int | None = None
    ) -> Lived:
        """Run the command; kill -9 it after `kill_after` seconds, or after `die_at_line` lines."""
        assert self._server.stdout is not None
        for file in (self._out, self._err):
            file.write_text("")  # a child may be killed before it has opened them
        order = {
            "words": [str(w) for w in words],
            "kill_after": kill_after,
            "die_at_line": die_at_line,
        }
        self._order({**order, "out": str(self._out), "err": str(self._err)})
        line = self._server.stdout.readline()
        assert line, "the server has died; its last words are on stderr"
        answer = json.loads(line)
        said = Said(answer["status"], self._out.read_text(), self._err.read_text())
        assert "Traceback" not in said.err, said.err
        return Lived(answer["status"], answer["seconds"], said)


@contextmanager
def forks(desk: Path) -> Iterator[Forks]:
    """A server for the time of a test file."""
    script = Path(__file__).with_name("fork_server.py")
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=env,
    ) as server:
        yield Forks(server, desk)
