"""What a site decides for itself, in its site.toml: the server cannot change any of it.

name = "north"
trust = ["/home/us/model.py:net"]   # code at this site that a run may use; none by default

[data]                              # options of the reader, as for `fedloom data add`
format = "table"
target = "ill"

[share]
statistics = true                   # counts, sums, sums of squares, names of categories
class_counts = false                # training samples of each class, by client
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedloom.core import json_checks as must_be
from fedloom.core.errors import UserError
from fedloom.deploy.site.data import Source
from fedloom.deploy.site.describe import Shared
from fedloom.settings.overrides import read as read_toml

MAX_BYTES = 2**31  # of a request, all parts together


@dataclass(frozen=True)
class SiteSettings:
    """name: of the site. trust: code of the site's own that settings of a run may name.

    reader: the format and the options of the reader. max_bytes: of a request.
    """

    name: str
    trust: tuple[str, ...] = ()
    reader: Mapping[str, Any] = field(default_factory=dict)
    shared: Shared = field(default_factory=Shared)
    max_bytes: int = MAX_BYTES

    def source(self, path: Path) -> Source:
        """The data at a path, with the reader's options."""
        options = dict(self.reader)
        return Source(path, str(options.pop("format", "auto")), options)


def read_settings(path: Path) -> SiteSettings:
    """The settings in a site.toml. What else it says is not for the worker."""
    table = read_toml(path)
    if (problem := _CHECK({name: table.get(name) for name in _FIELDS}, "")) is not None:
        raise UserError(f"'{path}': {problem}")
    return SiteSettings(
        table["name"],
        tuple(table.get("trust", ())),
        dict(table.get("data", {})),
        Shared(**table.get("share", {})),
        table.get("max_bytes", MAX_BYTES),
    )


_FIELDS = {
    "name": must_be.text(),
    "trust": must_be.optional(must_be.list_of(must_be.text())),
    "data": must_be.optional(must_be.mapping_of(must_be.anything())),
    "share": must_be.optional(
        must_be.fields({}, dict.fromkeys(("statistics", "class_counts"), must_be.boolean()))
    ),
    "max_bytes": must_be.optional(must_be.integer(low=1)),
}
_CHECK = must_be.fields(_FIELDS)
