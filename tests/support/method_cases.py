"""The test cases of all methods."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

METHOD_TESTS = Path(__file__).parents[1] / "methods"


def all_cases() -> Iterator[Any]:
    """Every case of a CASES table in tests/methods.

    `make` builds the method; `twin` is what it equals with degenerate parameters.
    """
    for file in sorted(METHOD_TESTS.glob("test_*.py")):
        yield from getattr(importlib.import_module(f"methods.{file.stem}"), "CASES", ())
