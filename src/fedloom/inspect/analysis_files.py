"""The result of an analysis, and its folder inside the run:

    analysis/analysis.json    the figures
    analysis/analysis.npz     arrays that are too long for JSON: diagonal, eigenvectors, landscape
    analysis/landscape.png    a plot of the landscape

The folder is written under another name and then renamed, so it never mixes two analyses.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedloom.core.errors import UserError
from fedloom.diagnostics.landscape import Landscape, save_png
from fedloom.runs.durable_files import TMP_SUFFIX, file_error, write_durably
from fedloom.runs.folder_layout import ANALYSIS

FOLDER = ANALYSIS
OLD_SUFFIX = ".old"


@dataclass(frozen=True)
class AnalysisResult:
    """Figures, as JSON holds them, and arrays by name."""

    figures: dict[str, Any]
    arrays: dict[str, np.ndarray] = field(default_factory=dict)


def save(run: Path, result: AnalysisResult, warn: Callable[[str], None]) -> Path:
    """Write the analysis into the run's folder, in place of an earlier one; returns its folder."""
    folder = run / FOLDER
    temporary, old = folder.with_name(FOLDER + TMP_SUFFIX), folder.with_name(FOLDER + OLD_SUFFIX)
    try:
        for leftover in (temporary, old):
            shutil.rmtree(leftover, ignore_errors=True)
        temporary.mkdir()
        _write_files(temporary, result, warn)
        if folder.exists():
            folder.rename(old)
        temporary.rename(folder)
    except OSError as error:
        raise file_error(folder, error) from error
    shutil.rmtree(old, ignore_errors=True)
    return folder


def _write_files(folder: Path, result: AnalysisResult, warn: Callable[[str], None]) -> None:
    if "landscape_loss" in result.arrays:
        _draw_landscape(result, folder / "landscape.png", warn)
    packed = io.BytesIO()
    np.savez(packed, **result.arrays)  # type: ignore[arg-type]
    write_durably(folder / "analysis.npz", packed.getvalue())
    text = json.dumps(result.figures, indent=1)
    write_durably(folder / "analysis.json", text.encode() + b"\n")


def _draw_landscape(result: AnalysisResult, path: Path, warn: Callable[[str], None]) -> None:
    figures, arrays = result.figures, result.arrays
    landscape = Landscape(arrays["landscape_steps"], arrays["landscape_loss"])
    title = f"{figures['method']}, {figures['model']}, round {figures['round']}"
    try:
        save_png(landscape, figures["landscape"]["eigenvalues"], path, title)
    except UserError as missing_package:
        warn(f"note: {missing_package}")


def json_safe(value: Any) -> Any:
    """The value with lists for tuples, and None for NaN and infinities, which JSON does not have.

    >>> json_safe({"a": (1.5, float("nan"))})
    {'a': [1.5, None]}
    """
    if isinstance(value, Mapping):
        return {name: json_safe(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_safe(item) for item in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
