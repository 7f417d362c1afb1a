"""Class names and constants that a deployment gives, instead of computing them from its sites.

In deployment.toml:

    [given]
    classes = ["healthy", "ill"]
    [given.columns]
    age = { mean = 55, std = 12 }
    smoker = { categories = ["no", "yes"] }

The mean and std of images, signals and volumes are the settings data.mean and data.std.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedloom.core import json_checks as must_be
from fedloom.core.errors import UserError
from fedloom.data.sources.column_plan import Scale


@dataclass(frozen=True)
class Given:
    """What the deployment gives; empty where the sites find out.

    scales: of columns of numbers. A missing value takes the mean. categories: of other columns.
    """

    classes: tuple[str, ...] = ()
    scales: Mapping[str, Scale] = field(default_factory=dict)
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Given:
        """From the table `given` of a deployment's settings."""
        if (problem := _CHECK(table, "given")) is not None:
            raise UserError(f"{problem}; write for example given.columns.age = {_EXAMPLE}")
        columns = table.get("columns", {})
        scales = {
            name: Scale(float(column["mean"]), float(column["mean"]), float(column["std"]))
            for name, column in columns.items()
            if "mean" in column
        }
        categories = {
            name: tuple(sorted(column["categories"]))
            for name, column in columns.items()
            if "categories" in column
        }
        return cls(tuple(table.get("classes", ())), scales, categories)


NOTHING_GIVEN = Given()

_EXAMPLE = "{ mean = 55, std = 12 }"
_NUMBERS = must_be.fields({"mean": must_be.number(), "std": must_be.number(low=1e-300)})
_CATEGORIES = must_be.fields({"categories": must_be.different_names()})


def _column(value: Any, path: str) -> str | None:
    is_categories = isinstance(value, Mapping) and "categories" in value
    return (_CATEGORIES if is_categories else _NUMBERS)(value, path)


_CHECK = must_be.fields(
    {}, {"classes": must_be.different_names(), "columns": must_be.mapping_of(_column)}
)
