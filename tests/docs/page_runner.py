"""Runs the blocks of a page in their order, as a reader would.

All Python blocks of a page are one session in a process of their own, so a block may use the names
of those before it. Shell blocks run in between, in the same folder. A block whose first line is a
comment with nothing but the name of a file is first saved under that name.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Self
from unittest import mock

from reading import Block
from typer.testing import CliRunner

from fedloom.cli.main import app
from fedloom.core import user_code
from support import warm_python

FILE = re.compile(r"# (?P<name>[\w./-]+\.\w+)\n")
# Answers go to the first standard output; what the blocks print goes to stderr.
SESSION = """
import json, os, sys, traceback
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
sys.path.insert(0, "")
names = {"__name__": "__main__"}
for line in sys.stdin:
    name, text = json.loads(line)
    try:
        exec(compile(text, name, "exec"), names)
        error = None
    except BaseException:
        error = traceback.format_exc()
    print(json.dumps(error), file=answers, flush=True)
"""


class PageRunner:
    """The folder of a reader who follows a page, with the Python session that is open in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._python: PythonSession | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._python is not None:
            self._python.close()

    def run(self, block: Block) -> None:
        """Run a block; AssertionError with its output if it fails."""
        if named := FILE.match(block.text):
            path = self.folder / named["name"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        if block.language == "python":
            self._run_python(block)
        elif block.language == "sh":
            self._run_shell(block)

    def _run_python(self, block: Block) -> None:
        if self._python is None:
            self._python = PythonSession(self.folder)
        error = self._python.error_of(block)
        assert error is None, f"{block}: {error}"

    def _run_shell(self, block: Block) -> None:
        """Run it line by line if no line has the shell's syntax, otherwise as a script."""
        commands = plain_commands(block.text)
        if commands is None:
            self._run_script(block, block.text)
            return
        for words in commands:
            if words[0] == "fedloom":
                self._run_here(block, words)
            else:
                self._run_script(block, shlex.join(words))

    def _run_here(self, block: Block, words: list[str]) -> None:
        """Run a command of fedloom in this process, which is faster."""
        with mock.patch.object(user_code, "_allowed", set()):  # as in a process of its own
            done = CliRunner().invoke(app, words[1:])
        assert done.exit_code == 0, f"{block}: {words}: {done.output} {done.exception!r}"

    def _run_script(self, block: Block, text: str) -> None:
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["sh", "-ec", text],
            cwd=self.folder,
            env=os.environ | {"PATH": programs},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{block}: {done.stdout} {done.stderr}"


class PythonSession:
    """A Python process that runs one block after the other with the same names."""

    def __init__(self, folder: Path) -> None:
        their_end, our_end = os.pipe()
        self._blocks = os.fdopen(our_end, "w")
        our_end, their_other_end = os.pipe()
        self._answers = os.fdopen(our_end)
        with (
            os.fdopen(their_end) as stdin,
            os.fdopen(their_other_end, "w") as stdout,
            (folder / "printed").open("w") as printed,
        ):
            streams = (stdin, stdout, printed)
            self._process = warm_python.start(["-c", SESSION], folder, os.environ, streams)

    def error_of(self, block: Block) -> str | None:
        """Run a block; the traceback if it fails."""
        self._blocks.write(json.dumps([str(block), block.text]) + "\n")
        self._blocks.flush()
        answer = self._answers.readline()
        assert answer, f"{block}: Python ended"
        error: str | None = json.loads(answer)
        return error

    def close(self) -> None:
        """End the process."""
        self._blocks.close()
        self._process.wait(60)
        self._answers.close()


def plain_commands(text: str) -> list[list[str]] | None:
    """The words of each line if all of them are simple commands, without the shell's syntax.

    >>> plain_commands("fedloom run --seed 1  # as before\\npython made.py")
    [['fedloom', 'run', '--seed', '1'], ['python', 'made.py']]
    >>> plain_commands("fedloom run > log.txt")
    >>> plain_commands("cd folder")
    """
    lines = text.replace("\\\n", " ").splitlines()
    commands = [words for line in lines if (words := shlex.split(line, comments=True))]
    syntax = {">", ">>", "<", "|", "&", "&&", "||", ";"}
    if any(words[0] not in ("fedloom", "python") or syntax & set(words) for words in commands):
        return None
    return None if re.search(r"[$*`]", re.sub(r"'[^']*'", "", text)) else commands
