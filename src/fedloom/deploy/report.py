"""What a site says of itself and of its data before a run. No row of its data is part of it.

What travels: the names of columns, classes and categories, the sizes and checksums of the clients'
data, and for each column or channel a count, a sum and a sum of squares (moments.py). A site can
keep the last to itself; then the deployment has to give the constants.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

import fedloom
from fedloom.core import json_checks as must_be
from fedloom.core.errors import UserError, shown_text
from fedloom.deploy import moments
from fedloom.deploy.moments import Moments
from fedloom.engines.flower.envelope import PROTOCOL

NUMBERS, CATEGORIES, EMPTY = "numbers", "categories", "no value"  # what a column holds


@dataclass(frozen=True)
class Software:
    """What has to be the same at the server and at all sites."""

    protocol: int
    fedloom: str
    torch: str
    python: str


def this_software() -> Software:
    """That of this process; torch without the suffix that says for which device it was built."""
    release = torch.__version__.partition("+")[0]
    return Software(PROTOCOL, fedloom.__version__, release, platform.python_version())


@dataclass(frozen=True)
class ClientReport:
    """A client of the site: its name, how many samples it has, and their checksum (sha256).

    class_counts: training samples by class, in the order of the site's class names; None if the
    site does not share them.
    """

    name: str
    train: int
    test: int
    checksum: str
    class_counts: tuple[int, ...] | None = None


@dataclass(frozen=True)
class ColumnReport:
    """A column of a table.

    holds: numbers, categories or no value at all. missing: how many values are. categories and
    moments: those of the training rows, if the column has them and the site shares them.
    """

    name: str
    holds: str
    missing: int
    categories: tuple[str, ...] | None = None
    moments: Moments | None = None


@dataclass(frozen=True)
class SiteReport:
    """All that a site says.

    shape     of one sample; of a table the number of its columns.
    dtype     of the samples as they are stored.
    classes   names of the classes that the site has samples of, or that its files name.
    numbered  whether these names are numbers, which are ordered by value.
    columns   of a table; empty for other kinds.
    channels  the moments of every channel of images, signals and volumes, in units of the stored
              samples; None if they are not shared.
    """

    site: str
    software: Software
    kind: str
    shape: tuple[int, ...]
    dtype: str
    classes: tuple[str, ...]
    numbered: bool
    clients: tuple[ClientReport, ...]
    columns: tuple[ColumnReport, ...] = ()
    channels: tuple[Moments, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return facts

    @classmethod
    def from_json(cls, site: str, facts: Mapping[str, Any]) -> SiteReport:
        """The report of a site, from its answer to hello; UserError if it is not one."""
        if (problem := _CHECK(facts, "")) is not None:
            raise UserError(
                f"site '{site}' sent a report that cannot be read: {problem}; "
                "install the same version of fedloom at the server and at all sites"
            )
        if facts["site"] != site:
            raise UserError(
                f"site '{site}' says that it is '{shown_text(facts['site'])}'; "
                "check which start kit was installed there"
            )
        channels = facts["channels"]
        return cls(
            site,
            Software(**facts["software"]),
            facts["kind"],
            tuple(facts["shape"]),
            facts["dtype"],
            tuple(facts["classes"]),
            facts["numbered"],
            tuple(_client(client) for client in facts["clients"]),
            tuple(_column(column) for column in facts["columns"]),
            None if channels is None else tuple(Moments(**channel) for channel in channels),
        )


def _client(facts: Mapping[str, Any]) -> ClientReport:
    return ClientReport(**{**facts, "class_counts": _tuple(facts["class_counts"])})


def _column(facts: Mapping[str, Any]) -> ColumnReport:
    categories, shared = _tuple(facts["categories"]), moments.from_json(facts["moments"])
    return ColumnReport(facts["name"], facts["holds"], facts["missing"], categories, shared)


def _tuple(values: Any) -> tuple[Any, ...] | None:
    return None if values is None else tuple(values)


_SOFTWARE = must_be.fields(
    {
        "protocol": must_be.integer(),
        **dict.fromkeys(("fedloom", "torch", "python"), must_be.text()),
    }
)
CLIENT_FIELDS = {
    "name": must_be.text(),
    "train": must_be.integer(low=1),
    "test": must_be.integer(),
    "checksum": must_be.checksum(),
    "class_counts": must_be.optional(must_be.list_of(must_be.integer())),
}
_COLUMN = must_be.fields(
    {
        **dict.fromkeys(("name", "holds"), must_be.text()),
        "missing": must_be.integer(),
        "categories": must_be.optional(must_be.different_names()),
        "moments": must_be.optional(moments.CHECK),
    }
)
_CHECK = must_be.fields(
    {
        **dict.fromkeys(("site", "kind", "dtype"), must_be.text()),
        "software": _SOFTWARE,
        "shape": must_be.list_of(must_be.integer(low=1)),
        "classes": must_be.different_names(),
        "numbered": must_be.boolean(),
        "clients": must_be.list_of(must_be.fields(CLIENT_FIELDS)),
        "columns": must_be.list_of(_COLUMN),
        "channels": must_be.optional(must_be.list_of(moments.CHECK)),
    }
)
