"""Programs that run in a fork behave as in a new Python."""

import os
import sys
from pathlib import Path

import pytest

from support import warm_python

SEEN = """import json, os, sys
print(json.dumps([sys.argv[1:], os.getcwd(), os.environ.get("COLOUR"), __name__, sys.path[0]]))
"""


def test_a_script_sees_its_arguments_folder_and_environment(tmp_path: Path) -> None:
    (tmp_path / "seen.py").write_text(SEEN)
    env = {**os.environ, "COLOUR": "green"}
    done = warm_python.run("seen.py", 1, "two", folder=tmp_path, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    expected = f'[["1", "two"], "{tmp_path}", "green", "__main__", "{tmp_path}"]\n'
    assert done.stdout == expected
    assert "COLOUR" not in warm_python.run("-c", "import os; print(*os.environ)").stdout


@pytest.mark.parametrize(
    ("code", "status", "stderr"),
    [
        ("raise SystemExit", 0, ""),
        ("raise SystemExit(3)", 3, ""),
        ("raise SystemExit('no')", 1, "no\n"),
        ("import os; os.kill(os.getpid(), 9)", -9, ""),
        ("import atexit, sys; atexit.register(sys.stderr.write, 'bye')", 0, "bye"),
    ],
)
def test_how_a_program_ends(code: str, status: int, stderr: str) -> None:
    done = warm_python.run("-c", code)
    assert (done.returncode, done.stderr) == (status, stderr)


def test_an_error_is_a_traceback() -> None:
    done = warm_python.run("-c", "print('begun')\n1 / 0")
    assert (done.returncode, done.stdout) == (1, "begun\n")
    assert done.stderr.endswith("ZeroDivisionError: division by zero\n")


@pytest.mark.skipif(sys.platform != "linux", reason="programs are forked on Linux only")
def test_torch_is_there_and_nothing_of_fedloom_or_of_earlier_programs() -> None:
    warm_python.run("-c", "import fedloom.cli.main")
    names = warm_python.run("-c", "import sys; print(*sys.modules)").stdout.split()
    assert "torch" in names
    assert not [name for name in names if name.partition(".")[0] in ("fedloom", "support")]
