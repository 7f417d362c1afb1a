"""What an analysis has found, and its folder inside the run:

    analysis/analysis.json    the figures
    analysis/analysis.npz     what is too long for JSON: diagonal, eigenvectors, the landscape
    analysis/landscape.png    its picture

The folder is made beside and renamed, so that it is of one analysis, whole.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedloom.core.errors import UserError
from fedloom.diagnostics.landscape import Landscape, save_png
from fedloom.runs.durable_files import TMP_SUFFIX, file_error, write_durably

FOLDER = "analysis"
OLD = ".old"


@dataclass(frozen=True)
class Findings:
    """Figures as JSON has them, and arrays by name."""

    figures: dict[str, Any]
    arrays: dict[str, np.ndarray]


def keep(run: Path, found: Findings, tell: Callable[[str], None]) -> Path:
    """Write the folder of this analysis in the place of an earlier one."""
    place = run / FOLDER
    beside, old = place.with_name(FOLDER + TMP_SUFFIX), place.with_name(FOLDER + OLD)
    try:
        for left in (beside, old):
            shutil.rmtree(left, ignore_errors=True)
        beside.mkdir()
        _draw(found, beside / "landscape.png", tell)
        packed = io.BytesIO()
        np.savez(packed, **found.arrays)  # type: ignore[arg-type]
        write_durably(beside / "analysis.npz", packed.getvalue())
        write_durably(
            beside / "analysis.json", json.dumps(found.figures, indent=1).encode() + b"\n"
        )
        if place.exists():
            place.rename(old)
        beside.rename(place)
    except OSError as error:
        raise file_error(place, error) from error
    shutil.rmtree(old, ignore_errors=True)
    return place


def _draw(found: Findings, path: Path, tell: Callable[[str], None]) -> None:
    if "landscape_loss" not in found.arrays:
        return
    figures, place = (
        found.figures,
        Landscape(found.arrays["landscape_steps"], found.arrays["landscape_loss"]),
    )
    try:
        save_png(
            place,
            figures["landscape"]["curvature"],
            path,
            f"{figures['method']}, {figures['model']}, round {figures['round']}",
        )
    except UserError as missing:
        tell(f"note: {missing}")


def plain(value: Any) -> Any:
    """The same for JSON, where a number that is none is null.

    >>> plain({"a": (1.5, float("nan"))})
    {'a': [1.5, None]}
    """
    if isinstance(value, Mapping):
        return {name: plain(v) for name, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
