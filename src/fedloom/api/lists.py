"""Arguments that are lists: text in their place would be taken apart into its letters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fedloom.core.errors import UserError, shown


def check_list(name: str, value: Any, example: str) -> None:
    """Raise unless the argument of that name is a list, or something else with several entries."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise UserError(f"{name}={shown(value)} is no list; write for example {name}={example}")
