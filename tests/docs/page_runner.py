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
        self._python: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._python is not None:
            self._python.communicate(timeout=60)

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
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            with (self.folder / "printed").open("w") as printed:
                self._python = subprocess.Popen(
                    [sys.executable, "-c", SESSION], cwd=self.folder, stderr=printed, **pipes
                )
        assert self._python.stdin is not None
        assert self._python.stdout is not None
        self._python.stdin.write(json.dumps([str(block), block.text]) + "\n")
        self._python.stdin.flush()
        answer = self._python.stdout.readline()
        assert answer, f"{block}: Python ended"
        error = json.loads(answer)
        assert error is None, f"{block}: {error}"

    def _run_shell(self, block: Block) -> None:
        """Lines that are all commands of fedloom run in this process, which is faster."""
        commands = plain_commands(block.text)
        if commands is None:
            self._run_script(block)
            return
        for words in commands:
            with mock.patch.object(user_code, "_allowed", set()):  # as in a process of its own
                done = CliRunner().invoke(app, words[1:])
            assert done.exit_code == 0, f"{block}: {words}: {done.output} {done.exception!r}"

    def _run_script(self, block: Block) -> None:
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["sh", "-ec", block.text],
            cwd=self.folder,
            env=os.environ | {"PATH": programs},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{block}: {done.stdout} {done.stderr}"


def plain_commands(text: str) -> list[list[str]] | None:
    """The words of each line if all of them are commands of fedloom without the shell's syntax.

    >>> plain_commands("fedloom run --seed 1  # as before\\nfedloom models")
    [['fedloom', 'run', '--seed', '1'], ['fedloom', 'models']]
    >>> plain_commands("fedloom run > log.txt")
    """
    lines = text.replace("\\\n", " ").splitlines()
    commands = [words for line in lines if (words := shlex.split(line, comments=True))]
    syntax = {">", ">>", "<", "|", "&", "&&", "||", ";"}
    if any(words[0] != "fedloom" or syntax & set(words) for words in commands):
        return None
    return None if re.search(r"[$*`]", re.sub(r"'[^']*'", "", text)) else commands
