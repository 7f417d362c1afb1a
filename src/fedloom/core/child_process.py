"""The command line of a child process that imports from the same places as this one."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def module_command(module: str, *arguments: str) -> list[str]:
    """`python -m MODULE ARGUMENTS`.

    By itself `python -m` imports from the current folder first, where a stranger's torch.py may
    lie. The `fedloom` command does not, and neither should what it starts.
    """
    safely = [] if _imports_from_here() else ["-P"]
    return [sys.executable, *safely, "-m", module, *arguments]


def _imports_from_here() -> bool:
    """Whether this process imports from the current folder; an empty entry stands for it."""
    here = Path(os.path.curdir).resolve()
    return any(Path(folder).resolve() == here for folder in sys.path)
