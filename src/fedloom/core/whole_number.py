"""Whole numbers that a user passes from Python: a client, or how many seeds."""

from __future__ import annotations

import operator
from typing import Any

from fedloom.core.errors import UserError, shown


def whole_number(value: Any) -> int | None:
    """The value as an int, also one of NumPy's or torch's types; None for anything else.

    >>> whole_number(7), whole_number(True), whole_number(2.0), whole_number("2")
    (7, None, None, None)
    """
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def count(name: str, value: Any) -> int:
    """The argument of that name, a whole number of at least 1; raises UserError otherwise."""
    number = whole_number(value)
    if number is None or number < 1:
        raise UserError(f"{name}={shown(value)} must be a whole number of at least 1")
    return number
