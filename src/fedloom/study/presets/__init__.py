"""Settings under a name: TOML files whose first comment says what they are for."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Any

from fedloom.core.errors import unknown


@dataclass(frozen=True)
class Preset:
    """A named set of settings; about is the comment at its head."""

    name: str
    about: str
    settings: dict[str, Any]


def names() -> list[str]:
    """All presets."""
    return sorted(f.name.removesuffix(".toml") for f in resources.files(__name__).iterdir() if f.name.endswith(".toml"))


def preset(name: str) -> Preset:
    """The preset of that name."""
    if name not in names():
        raise unknown("preset", name, names(), see="fedloom presets")
    text = (resources.files(__name__) / f"{name}.toml").read_text(encoding="utf-8")
    head = [line.removeprefix("#").strip() for line in text.partition("\n\n")[0].splitlines() if line.startswith("#")]
    return Preset(name, " ".join(head), tomllib.loads(text))
