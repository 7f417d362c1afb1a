"""Messages to someone who uses fedloom from Python."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

PACKAGE = str(Path(__file__).parents[1])


class FedloomWarning(UserWarning):
    """What the user of a run should know."""


def warn_user(message: str) -> None:
    """Show a message as a Python warning that points to the line of the user's code."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message.removeprefix("note: "), FedloomWarning, stacklevel=level)
