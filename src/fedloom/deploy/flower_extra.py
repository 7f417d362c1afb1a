"""Flower is an optional dependency: what needs it asks here, so that every message is the same."""

from __future__ import annotations

import importlib.util
from importlib import metadata

from fedloom.core.errors import UserError

TESTED = "1.41.0"  # Flower's API moves between versions, so the extra pins this one
_INSTALL = "pip install 'fedloom[flower]'"


def check_flower() -> None:
    """Raise unless the version of Flower is installed that fedloom was tested with."""
    check_importable("flwr")
    installed = metadata.version("flwr")
    if installed != TESTED:
        raise UserError(
            f"flwr {installed} is installed, and fedloom works with flwr {TESTED}; "
            f"install it with: {_INSTALL}"
        )


def check_importable(package: str) -> None:
    """Raise with the extra to install if a package that comes with Flower is missing.

    >>> check_importable("no_such_package")
    Traceback (most recent call last):
    ...
    fedloom.core.errors.UserError: fedloom deploy needs the package 'no_such_package', which is \
not installed; install it with: pip install 'fedloom[flower]'
    """
    if importlib.util.find_spec(package) is None:
        raise UserError(
            f"fedloom deploy needs the package '{package}', which is not installed; "
            f"install it with: {_INSTALL}"
        )
