"""What the server and all sites have agreed on before a run: an `Agreement`, as JSON on the wire.

A site encodes and scales its samples with it, builds the model and the method from the settings in
it, and refuses to work for anything else. Its digest names it in every message.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from fedloom.core import json_checks as must_be
from fedloom.core.errors import UserError, shown_text
from fedloom.data.sources.column_plan import ColumnPlan, Scale
from fedloom.deploy.report import CLIENT_FIELDS

RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class AgreedClient:
    """A client: where it is, how many samples it has, and their checksum (sha256).

    class_counts: training samples by class, in the order of the agreement; None if unknown.
    """

    site: str
    name: str
    train: int
    test: int
    checksum: str
    class_counts: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Agreement:
    """All that has to be the same everywhere.

    run        id of the run.
    settings   all settings, as TOML.
    shape      of one sample as the model gets it. dtype: as it is stored.
    mean, std  per channel, as in Dataset; empty for tables and text.
    columns    how each column of a table is encoded; empty for other kinds.
    clients    of all sites. Their positions are their numbers.
    code       sha256 of the user's own files that the settings name, by file name.
    """

    protocol: int
    run: str
    settings: str
    kind: str
    shape: tuple[int, ...]
    dtype: str
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    columns: tuple[ColumnPlan, ...]
    clients: tuple[AgreedClient, ...]
    code: Mapping[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """The sha256 of all of it."""
        return digest_of(self.to_json())

    @property
    def sites(self) -> list[str]:
        """The names of the sites, in the order of their clients."""
        return list(dict.fromkeys(client.site for client in self.clients))

    def clients_of(self, site: str) -> dict[int, AgreedClient]:
        """The clients of a site by number."""
        return {n: client for n, client in enumerate(self.clients) if client.site == site}

    def to_json(self) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return facts

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Agreement:
        """The agreement that a message or a file holds; UserError if it holds none."""
        if (problem := _CHECK(facts, "") or _contradiction(facts)) is not None:
            raise UserError(
                f"an agreement that cannot be read: {problem}; "
                "install the same version of fedloom at the server and at all sites"
            )
        tuples = {name: tuple(facts[name]) for name in ("shape", "classes", "mean", "std")}
        columns = tuple(_column(column) for column in facts["columns"])
        clients = tuple(_client(client) for client in facts["clients"])
        return cls(**{**facts, **tuples, "columns": columns, "clients": clients})


def digest_of(facts: Mapping[str, Any]) -> str:
    """The sha256 of an agreement as JSON."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def check_run_id(run: str) -> None:
    """Raise for an id that may not name a folder."""
    if RUN_ID.fullmatch(run) is None:
        raise UserError(
            f"run id '{shown_text(run)}' must consist of letters, digits, '-', '_' and '.', start "
            "with a letter or digit and have at most 100 characters; give the run another name"
        )


def _column(facts: Mapping[str, Any]) -> ColumnPlan:
    levels, scale = facts["levels"], facts["scale"]
    return ColumnPlan(
        facts["name"],
        None if levels is None else tuple(levels),
        None if scale is None else Scale(**scale),
        facts["marks_missing"],
    )


def _client(facts: Mapping[str, Any]) -> AgreedClient:
    counts = facts["class_counts"]
    return AgreedClient(**{**facts, "class_counts": None if counts is None else tuple(counts)})


def _contradiction(facts: Mapping[str, Any]) -> str | None:
    """What is wrong with an agreement whose fields are each of the right type."""
    if RUN_ID.fullmatch(facts["run"]) is None:
        return f"field 'run' is {shown_text(facts['run'])}, which cannot name a folder"
    if len(facts["mean"]) != len(facts["std"]):
        return "fields 'mean' and 'std' have different lengths"
    for column in facts["columns"]:
        if column["levels"] is None and column["scale"] is None:
            return f"column '{shown_text(column['name'])}' has neither categories nor a scale"
    return None


_POSITIVE = must_be.number(low=1e-300)
_SCALE = must_be.fields(
    {"fill": must_be.number(), "mean": must_be.number(), "std": _POSITIVE},
)
_COLUMN = must_be.fields(
    {
        "name": must_be.text(),
        "levels": must_be.optional(must_be.different_names()),
        "scale": must_be.optional(_SCALE),
        "marks_missing": must_be.boolean(),
    }
)
_CLIENT = must_be.fields({"site": must_be.text(), **CLIENT_FIELDS})
_CHECK = must_be.fields(
    {
        "protocol": must_be.integer(),
        **dict.fromkeys(("run", "settings", "kind", "dtype"), must_be.text()),
        "shape": must_be.list_of(must_be.integer(low=1)),
        "classes": must_be.different_names(),
        "mean": must_be.list_of(must_be.number()),
        "std": must_be.list_of(_POSITIVE),
        "columns": must_be.list_of(_COLUMN),
        "clients": must_be.list_of(_CLIENT),
        "code": must_be.mapping_of(must_be.checksum()),
    }
)
