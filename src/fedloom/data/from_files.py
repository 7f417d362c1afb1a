"""Data sets from files, for Python: what looks odd is shown as a warning, not only recorded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedloom.core.warn import warn_user
from fedloom.data.dataset import Dataset
from fedloom.data.sources import read
from fedloom.data.sources.checks import warnings_about


def read_files(
    path: str | Path,
    format: str = "auto",
    *,
    warn: Callable[[str], None] = warn_user,
    **options: Any,
) -> Dataset:
    """The data set in a file or folder, in one of the formats of `fedloom data add`.

    options: those of the format (docs/data.md), such as target="disease" for a table. warn: what
    to do with each warning; by default it becomes a Python warning.
    """
    dataset = read(path, format, **options)
    for warning in warnings_about(dataset):
        warn(warning)
    return dataset
