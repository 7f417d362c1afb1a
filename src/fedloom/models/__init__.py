"""Models as chains of named blocks: by name with `build`, or any module with `cut`."""

from __future__ import annotations

from fedloom.core.lazy import lazy_exports

_EXPORTS = {
    "MODELS": "fedloom.models.registry",
    "build": "fedloom.models.registry",
    "Chain": "fedloom.core.chain",
    "cut": "fedloom.core.chain_from_module",
}
__all__ = list(_EXPORTS)
__getattr__, __dir__ = lazy_exports(__name__, _EXPORTS)
