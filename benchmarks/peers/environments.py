"""A virtual environment for each peer, under .peers/, with its pinned versions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".peers"
FLAGS = {"blazefl": ["--ignore-requires-python"]}  # see blazefl.txt


def python_of(peer: str) -> Path:
    """The Python of the peer's environment, which is created now if its pins have changed."""
    pins, folder = Path(__file__).with_name(f"{peer}.txt"), FOLDER / peer
    python, installed = folder / "bin" / "python", folder / "installed.txt"
    if not installed.exists() or installed.read_text() != pins.read_text():
        print(f"installing {peer} into {folder.relative_to(ROOT)}", flush=True)
        _run(sys.executable, "-m", "venv", "--clear", str(folder))
        pip = [str(python), "-m", "pip", "install", "--quiet", "--requirement", str(pins)]
        _run(*pip, *FLAGS.get(peer, []))
        installed.write_text(pins.read_text())
    return python


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"it does not install: {last_line(done.stderr)}")


def last_line(text: str) -> str:
    """The last line of a program's output, which usually names the error."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no output")
