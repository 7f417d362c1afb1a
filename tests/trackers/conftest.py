"""The home and the desk of the command-line tests, with the tiny data set."""

from cli.conftest import desk, home

__all__ = ["desk", "home"]
