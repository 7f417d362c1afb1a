"""The methods: each module of this package is one, and its function of the same name builds it.

`method(name, **parameters)` builds one, `names()` lists them, and `+` combines them.
`of_type` selects the layers of a class, for a method that keeps them at the clients.
"""

from __future__ import annotations

from fedloom.core.lazy import lazy_exports

_EXPORTS = {
    "method": "fedloom.methods.registry",
    "names": "fedloom.methods.registry",
    "entry": "fedloom.methods.registry",
    "join": "fedloom.core.compose",
    "of_type": "fedloom.core.select",
}
__all__ = list(_EXPORTS)
__getattr__, __dir__ = lazy_exports(__name__, _EXPORTS)
