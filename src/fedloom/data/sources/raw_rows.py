"""New rows of a table as the model takes them, encoded with the constants of its training rows.

The readers write these constants into `Dataset.about`: "columns" has an entry for each input of
the model, "features" one for each column of the table.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from fedloom.core.errors import UserError
from fedloom.core.warn import warn_user
from fedloom.data.dataset import Dataset
from fedloom.data.sources.array_kinds import to_float32
from fedloom.data.sources.column_plan import ColumnPlan, Scale
from fedloom.data.sources.dataframe import is_dataframe, without_missing
from fedloom.data.sources.errors import data_error, shortened
from fedloom.data.sources.frames import as_category
from fedloom.data.sources.missing_values import MISSING, is_missing_value

# Readers that standardise tables, and did not always write down with what.
STANDARDISING = ("npz", "huggingface")
WHERE = "the samples"


def column_plans(dataset: Dataset) -> list[ColumnPlan] | None:
    """How each column of a table is encoded; None if samples reach the model as they are."""
    about = dataset.about
    if dataset.kind != "table":
        return None
    if "columns" not in about:
        if about.get("format") in STANDARDISING:
            raise _add_again(dataset.name, "its columns were standardised with")
        return None
    entries: list[dict[str, Any]] = json.loads(about["columns"])
    if "features" not in about:
        return [ColumnPlan(entry["name"], scale=_scale(entry)) for entry in entries]
    plans, start = [], 0
    for column in json.loads(about["features"]):
        stop = start + column["inputs"]
        plans.append(_plan(column, entries[start:stop], dataset.name))
        start = stop
    return plans


def _plan(column: Mapping[str, Any], inputs: Sequence[Mapping[str, Any]], name: str) -> ColumnPlan:
    """The plan of one column, from what is known of it and of its inputs."""
    own = column["name"]
    is_marked = inputs[-1]["name"] == f"{own} is missing"
    if column["kind"] == "numeric":
        return ColumnPlan(own, None, _scale(inputs[0]), is_marked)
    if "mean" not in inputs[0]:
        levels = [entry["name"].removeprefix(f"{own}=") for entry in inputs]
        return ColumnPlan(own, tuple(levels[:-1] if is_marked else levels), None, is_marked)
    if "levels" not in inputs[0]:
        raise _add_again(name, f"the categories of its column '{own}' are")
    return ColumnPlan(own, tuple(inputs[0]["levels"]), _scale(inputs[0]), is_marked)


def _scale(entry: Mapping[str, Any]) -> Scale:
    return Scale(entry["median"], entry["mean"], entry["std"])


def _add_again(name: str, what: str) -> UserError:
    return UserError(
        f"raw samples cannot be encoded: data set '{name}' does not say what {what}, because an "
        f"older fedloom wrote it; add it again with: fedloom data add {name} --from PATH --replace"
    )


def encoded_rows(x: Any, plans: Sequence[ColumnPlan]) -> np.ndarray:
    """Raw rows as inputs of the model, float32.

    x: a DataFrame with the columns of the table, in any order and among others, or rows with
    their values in the order of the table.
    """
    columns = _named_columns(x, plans) if is_dataframe(x) else _columns_in_order(x, plans)
    inputs = []
    for plan, values in zip(plans, columns, strict=True):
        column = _numbers(values, plan.name) if plan.levels is None else _categories(values, plan)
        inputs += plan.encode(column)
    return to_float32(np.stack(inputs, axis=1))


def _named_columns(data: Any, plans: Sequence[ColumnPlan]) -> list[list[Any]]:
    names = [str(name) for name in data.columns]
    if absent := [plan.name for plan in plans if plan.name not in names]:
        remedy = f"the model needs {shortened(absent)} as well"
        expected = f"the columns {_listed(plans)}"
        raise data_error(WHERE, f"the columns {shortened(names)}", expected, remedy)
    if twice := [plan.name for plan in plans if names.count(plan.name) > 1]:
        remedy = "drop or rename one of them"
        raise data_error(WHERE, f"column '{twice[0]}' twice", "each name once", remedy)
    return [without_missing(data.iloc[:, names.index(plan.name)]) for plan in plans]


def _columns_in_order(x: Any, plans: Sequence[ColumnPlan]) -> list[list[Any]]:
    """The values by column. Objects, so that a number beside a word stays a number."""
    expected = f"rows of the columns {_listed(plans)}"
    remedy = "pass a row of these values for each sample, or a DataFrame with these columns"
    try:
        rows = np.array(x, dtype=object) if isinstance(x, (list, tuple)) else np.asarray(x)
    except ValueError:
        raise data_error(WHERE, "rows of several lengths", expected, remedy) from None
    if rows.ndim != 2 or rows.shape[1] != len(plans):
        raise data_error(WHERE, f"an array of shape {rows.shape}", expected, remedy)
    return [rows[:, i].tolist() for i in range(len(plans))]


def _listed(plans: Sequence[ColumnPlan]) -> str:
    return shortened((plan.name for plan in plans), 20)


def _is_missing(value: Any) -> bool:
    return is_missing_value(value) or (isinstance(value, str) and _is_gap(value))


def _is_gap(text: str) -> bool:
    return text.strip().lower() in MISSING


def _numbers(values: Sequence[Any], name: str) -> np.ndarray:
    """float64 with NaN for missing values."""
    place = f"{WHERE}, column '{name}'"
    try:
        numbers = np.array([np.nan if _is_missing(v) else float(v) for v in values])
    except (TypeError, ValueError):
        words = shortened((repr(v) for v in values if isinstance(v, str)), 3)
        remedy = "write numbers, or None for a missing one"
        raise data_error(place, words, "numbers, as in the training data", remedy) from None
    if np.isinf(to_float32(numbers)).any():
        remedy = "write None for a missing number"
        raise data_error(place, "infinity, or more than float32 holds", "finite numbers", remedy)
    return numbers


def _categories(values: Sequence[Any], plan: ColumnPlan) -> np.ndarray:
    """Text with "" for missing values; a warning for what is no category of the training rows."""
    assert plan.levels is not None
    levels = {*plan.levels}
    column = np.array([_category(value, levels) for value in values], dtype=str)
    if unknown := sorted({*column.tolist()} - {"", *levels}):
        warn_user(
            f"column '{plan.name}' has {shortened(map(repr, unknown), 3)}, which the training rows "
            f"do not have; it counts as none of {shortened(map(repr, plan.levels))}"
        )
    return column


def _category(value: Any, levels: Collection[str]) -> str:
    """The name of the category, as the training rows have it.

    A DataFrame may have categories that would be missing values in a file, such as NA for Namibia,
    or that have spaces around them.
    """
    if is_missing_value(value):
        return ""
    text = as_category(value)
    if text in levels:
        return text
    return "" if _is_gap(text) else text.strip()
