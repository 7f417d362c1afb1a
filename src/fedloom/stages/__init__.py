"""Stages of the server: how replies become a new global model.

mean, apply_mean              average what clients sent, and apply it
scale, momentum, adaptive     server optimisers: a learning rate, heavy-ball momentum, Adam and Yogi
"""

from __future__ import annotations

from fedloom.core.lazy import lazy_exports

_EXPORTS = {
    "mean": "fedloom.core.server",
    "apply_mean": "fedloom.core.server",
    "scale": "fedloom.stages.optimise",
    "momentum": "fedloom.stages.optimise",
    "adaptive": "fedloom.stages.optimise",
}
__all__ = list(_EXPORTS)
__getattr__, __dir__ = lazy_exports(__name__, _EXPORTS)
