"""The rows of all tables of methods, wherever they stand."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

METHOD_TESTS = Path(__file__).parents[1] / "methods"


def all_cases() -> Iterator[Any]:
    """Every row of a CASES in tests/methods: `make` makes the method, `twin` is what it equals where it degenerates."""
    for file in sorted(METHOD_TESTS.glob("test_*.py")):
        yield from getattr(importlib.import_module(f"methods.{file.stem}"), "CASES", ())
