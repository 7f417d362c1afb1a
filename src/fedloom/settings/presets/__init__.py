"""Settings under a name: TOML files whose first comment says what they are for; those in a paper's folder are its tables."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from fedloom.core.errors import unknown_name
from fedloom.settings.overrides import merged
from fedloom.settings.paper_table import Table, table

COMMON = "common"  # what the tables of a paper share; no preset by itself
COST = "cost-"  # files of `fedloom cost`


@dataclass(frozen=True)
class Preset:
    """A named set of settings; about is the comment at its head. Of a table the settings are those that all its runs share."""

    name: str
    about: str
    settings: dict[str, Any]
    table: Table | None = None

    def describe(self) -> dict[str, Any]:
        """As JSON."""
        plain = {"name": self.name, "about": self.about, "settings": self.settings}
        return plain if self.table is None else {**plain, "table": self.table.describe()}


def names() -> list[str]:
    """All presets."""
    return sorted(_found(resources.files(__name__), ""))


def _found(folder: Traversable, path: str) -> Iterator[str]:
    for file in folder.iterdir():
        stem = file.name.removesuffix(".toml")
        if file.is_dir():
            yield from _found(file, f"{path}{file.name}/")
        elif stem != file.name and stem != COMMON and not stem.startswith(COST):
            yield path + stem


def preset(name: str) -> Preset:
    """The preset of that name."""
    if name not in names():
        raise unknown_name("preset", name, names(), see="fedloom presets")
    text = _text(name)
    head = [
        line.removeprefix("#").strip()
        for line in text.partition("\n\n")[0].splitlines()
        if line.startswith("#")
    ]
    raw, about = _raw(name), " ".join(head)
    if "rows" not in raw:
        return Preset(name, about, raw)
    study = table(name, raw)
    return Preset(name, about, study.settings, study)


def _raw(name: str) -> dict[str, Any]:
    """The file, over those that it is like."""
    raw = tomllib.loads(_text(name))
    return merged(_raw(f"{name.rpartition('/')[0]}/{raw['like']}"), raw) if "like" in raw else raw


def _text(name: str) -> str:
    return (
        resources.files(__name__).joinpath(*f"{name}.toml".split("/")).read_text(encoding="utf-8")
    )
