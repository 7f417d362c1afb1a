"""Named settings: TOML files whose first comment says what they are for and how to run them.

The files in a paper's folder are its tables (settings/paper_table.py).
"""

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

COMMON = "common"  # a file with what the tables of a paper share; not a preset
COST = "cost-"  # prefix of the files for `fedloom cost`; not presets


@dataclass(frozen=True)
class Preset:
    """A named set of settings. about: the first comment of its file.

    settings: of a single run; for a table, those that all its runs share.
    """

    name: str
    about: str
    settings: dict[str, Any]
    table: Table | None = None

    def describe(self) -> dict[str, Any]:
        """As JSON."""
        described = {"name": self.name, "about": self.about, "settings": self.settings}
        if self.table is not None:
            described["table"] = self.table.describe()
        return described


def names() -> list[str]:
    """The names of all presets, sorted."""
    return sorted(_names_below(resources.files(__name__), ""))


def _names_below(folder: Traversable, path: str) -> Iterator[str]:
    for file in folder.iterdir():
        if file.is_dir():
            yield from _names_below(file, f"{path}{file.name}/")
        elif _is_preset(file.name):
            yield path + file.name.removesuffix(".toml")


def _is_preset(file_name: str) -> bool:
    is_helper = file_name == f"{COMMON}.toml" or file_name.startswith(COST)
    return file_name.endswith(".toml") and not is_helper


def preset(name: str) -> Preset:
    """The preset of that name; a UserError with the nearest name if there is none."""
    if name not in names():
        raise unknown_name("preset", name, names(), see="fedloom presets")
    raw, about = _load(name), _first_comment(_text(name))
    if "rows" not in raw:
        return Preset(name, about, raw)
    paper_table = table(name, raw)
    return Preset(name, about, paper_table.settings, paper_table)


def _load(name: str) -> dict[str, Any]:
    """The parsed file, merged over the file that it extends, if any."""
    raw = tomllib.loads(_text(name))
    if "extends" not in raw:
        return raw
    folder = name.rpartition("/")[0]
    return merged(_load(f"{folder}/{raw['extends']}"), raw)


def _first_comment(text: str) -> str:
    head = text.partition("\n\n")[0].splitlines()
    return " ".join(line.removeprefix("#").strip() for line in head if line.startswith("#"))


def _text(name: str) -> str:
    file = resources.files(__name__).joinpath(*f"{name}.toml".split("/"))
    return file.read_text(encoding="utf-8")
