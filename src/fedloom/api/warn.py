"""Messages to someone who uses fedloom from Python."""

from __future__ import annotations

import warnings


class FedloomWarning(UserWarning):
    """What the user of a run should know."""


def warn_user(message: str) -> None:
    """Show a message as a Python warning, at the line of the user's code."""
    warnings.warn(message.removeprefix("note: "), FedloomWarning, stacklevel=4)
