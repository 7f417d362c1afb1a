"""Names of a package that are imported when they are first used (PEP 562), so that importing the
package stays fast."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy_exports(
    package: str, names: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` for a package whose names live in the given modules.

    names: for each exported name, its module, or "module:other_name"; a name equal to the last part
    of its module, with a trailing colon ("fedloom.data:"), is the module itself.
    """

    def __getattr__(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        place, colon, other = names[name].partition(":")
        module = importlib.import_module(place)
        return module if colon and not other else getattr(module, other or name)

    def __dir__() -> list[str]:
        return sorted(names)

    return __getattr__, __dir__
