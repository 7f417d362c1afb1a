"""pandas DataFrames as columns of NumPy arrays. pandas itself is never imported."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedloom.core.errors import unknown_name
from fedloom.data.sources.errors import data_error
from fedloom.data.sources.frames import Frame, as_category
from fedloom.data.sources.missing_values import Remedies, check_no_stray_words

REMEDIES = Remedies(
    words="convert the column with pandas.to_numeric(column, errors='coerce') and fill in what is "
    "missing, or with astype('category')",
    number_format="{options} in pandas.read_csv, or convert the column with astype('category') "
    "if it holds categories",
)

NUMBERS = (int, float, np.integer, np.floating, np.bool_)  # also in a column of Python objects


def is_dataframe(value: object) -> bool:
    """Whether it is a DataFrame of pandas or of a subclass."""
    from_pandas = any(base.__module__.split(".")[0] == "pandas" for base in type(value).__mro__)
    return from_pandas and hasattr(value, "columns") and hasattr(value, "to_numpy")


def pop_series(data: Any, column: object, where: str) -> tuple[Any, Any]:
    """The DataFrame without the column, and the column as a Series."""
    names = [str(name) for name in data.columns]
    for name in names:
        if names.count(name) > 1:
            raise data_error(
                where, f"column '{name}' twice", "each name once", "rename one of them"
            )
    if str(column) not in names:
        raise unknown_name("column", column, names, place=f"the DataFrame {where}")
    position = names.index(str(column))
    others = [i for i in range(len(names)) if i != position]
    return data.iloc[:, others], data.iloc[:, position]


def frame_from_pandas(data: Any, where: str) -> Frame:
    """The columns: numbers and booleans as float64 with NaN, categories and strings as text.

    A column of Python objects is one of numbers if it holds nothing else.
    """
    return {
        str(name): _column(data.iloc[:, i], f"{where}, column '{name}'")
        for i, name in enumerate(data.columns)
    }


def _column(series: Any, where: str) -> np.ndarray:
    kind = getattr(series.dtype, "kind", "O")  # extension types such as Int64 have one, too
    if kind in "biuf":
        numbers: np.ndarray = series.to_numpy(dtype=np.float64, na_value=np.nan)
        return numbers
    if kind not in "OSU":
        remedy = "convert the column to numbers, or drop it"
        raise data_error(where, f"values of type {series.dtype}", "numbers or text", remedy)
    values, is_category = without_missing(series), str(series.dtype) == "category"
    if not is_category and all(value is None or isinstance(value, NUMBERS) for value in values):
        return np.array([np.nan if value is None else value for value in values], np.float64)
    column = np.array([_as_text(value, where) for value in values], dtype=str)
    if not is_category:
        check_no_stray_words(column, where, REMEDIES)
    return column


def without_missing(series: Any) -> list[Any]:
    """The values of a Series, None for missing ones."""
    missing = series.isna().to_numpy()
    values = series.to_numpy(dtype=object)
    return [None if gone else value for value, gone in zip(values, missing, strict=True)]


def _as_text(value: Any, where: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, (str, *NUMBERS)):
        found = f"a value of type {type(value).__name__}"
        remedy = "convert the column to numbers or strings, or drop it"
        raise data_error(where, found, "numbers or text", remedy)
    return as_category(value)
