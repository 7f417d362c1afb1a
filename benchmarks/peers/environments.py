"""An environment for every peer, under .peers/, with the versions that its list of pins names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLACES = ROOT / ".peers"
FLAGS = {"blazefl": ["--ignore-requires-python"]}  # see its list of pins


def python_of(peer: str) -> Path:
    """The interpreter of the peer's environment, made now if its pins are new."""
    pins, place = Path(__file__).with_name(f"{peer}.txt"), PLACES / peer
    python, mark = place / "bin" / "python", place / "installed.txt"
    if not mark.exists() or mark.read_text() != pins.read_text():
        print(f"installing {peer} into {place.relative_to(ROOT)}", flush=True)
        _run(sys.executable, "-m", "venv", "--clear", str(place))
        _run(
            str(python),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--requirement",
            str(pins),
            *FLAGS.get(peer, []),
        )
        mark.write_text(pins.read_text())
    return python


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"it does not install: {last_line(done.stderr)}")


def last_line(text: str) -> str:
    """What a program said last, which is what went wrong."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no word")
