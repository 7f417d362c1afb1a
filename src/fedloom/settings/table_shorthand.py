"""Writes out the shorthands in the file of a paper's table.

A column that names a set of measures becomes one column per measure. A row with `choose` and
`among` becomes one row per choice. Both may take their settings from a table by their name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

RawTable = Mapping[str, Any]


def expanded_columns(
    columns: Sequence[RawTable],
    setups: Mapping[str, RawTable],
    measure_sets: Mapping[str, RawTable],
) -> list[RawTable]:
    """Every column with the settings of its setup, once per measure of the set it names.

    >>> short = [{"name": "near", "measure_set": "ends"}]
    >>> full = expanded_columns(short, {}, {"ends": {"end": "accuracy"}})
    >>> [(column["name"], column["measure"]) for column in full]
    [('near end', 'accuracy')]
    """
    result: list[RawTable] = []
    for column in columns:
        result += _per_measure({**setups.get(column["name"], {}), **column}, measure_sets)
    return result


def _per_measure(column: RawTable, measure_sets: Mapping[str, RawTable]) -> list[RawTable]:
    rest = {key: value for key, value in column.items() if key not in ("measure_set", "measure")}
    if "measure_set" not in column:
        return [{**rest, **_by_scale(column.get("measure", "accuracy"))}]
    return [
        {**rest, "name": f"{column['name']} {label}", **_by_scale(measure)}
        for label, measure in measure_sets[column["measure_set"]].items()
    ]


def _by_scale(measure: str | Sequence[str]) -> RawTable:
    """One measure for both scales, or a pair: the paper's and that of the small scale."""
    if isinstance(measure, str):
        return {"measure": measure}
    at_paper_scale, at_small_scale = measure
    return {"measure": at_paper_scale, "measure_small": at_small_scale}


def expanded_rows(rows: Sequence[RawTable], methods: Mapping[str, RawTable]) -> list[RawTable]:
    """Every row with its settings, by default those of the method of its name, once per choice.

    >>> short = [{"name": "some", "choose": 1, "among": "a b"}]
    >>> full = expanded_rows(short, {"some": {"blocks": "{}"}})
    >>> [(row["name"], row["settings"]) for row in full]
    [('a', {'blocks': 'a'}), ('b', {'blocks': 'b'})]
    """
    result: list[RawTable] = []
    for row in rows:
        full = row if "settings" in row else {**row, "settings": methods[row["name"]]}
        result += _per_choice(**full) if "choose" in full else [full]
    return result


def _per_choice(
    name: str, choose: int, among: str, settings: RawTable, **rest: Any
) -> list[RawTable]:
    """One row for every choice of `choose` items; the chosen items are its name."""
    items = among.split()
    return [
        {
            **rest,
            "name": " ".join(chosen),
            "settings": _filled(settings, " ".join(chosen)),
            "choice": f"{choose} of {len(items)}",
        }
        for chosen in combinations(items, choose)
    ]


def _filled(settings: Any, chosen: str) -> Any:
    """The settings with the chosen items in place of {}."""
    if isinstance(settings, Mapping):
        return {key: _filled(value, chosen) for key, value in settings.items()}
    return settings.replace("{}", chosen) if isinstance(settings, str) else settings
