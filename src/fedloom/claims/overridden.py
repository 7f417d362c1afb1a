"""Which settings of a suite the user has changed: with other settings its gate says nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fedloom.settings.config import Config

# How a run is made, not what is run. A suite has its seeds apart from its settings.
WITHOUT_EFFECT = {"seed", "engine", "workers", "device", "checkpoint_every"}


def changed_settings(fixed: Config, given: Config) -> list[str]:
    """The settings whose value differs from the fixed one, such as rounds=1."""
    before, now = _by_name(fixed), _by_name(given)
    left_out = [f"without {name}" for name in before if name not in now]
    other = [
        f"{name}={value}" for name, value in now.items() if (name, value) not in before.items()
    ]
    # A new model or partition lacks arguments of the old one; its name says enough.
    return other or left_out


def _by_name(config: Config) -> dict[str, str]:
    return dict(_flat(config.model_dump(mode="json", exclude=WITHOUT_EFFECT)))


def _flat(settings: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", str(value)
