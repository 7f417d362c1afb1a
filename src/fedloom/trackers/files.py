"""The files of a finished run that trackers keep."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fedloom.metrics.records import RoundRecord, RunResult
from fedloom.runs.folder_layout import CONFIG, METRICS, RESULT
from fedloom.runs.tensor_bytes import pack
from fedloom.settings.config import Config

if TYPE_CHECKING:
    from fedloom.core.params import Params

WEIGHTS = "model.safetensors"


@contextmanager
def run_files(
    folder: Path | None,
    config: Config,
    records: Sequence[RoundRecord],
    result: RunResult,
    weights: Params,
) -> Iterator[list[Path]]:
    """Settings, metrics, result and final weights; made for the moment if there is no folder."""
    with tempfile.TemporaryDirectory(prefix="fedloom-") as temporary:
        place = Path(temporary)
        (place / WEIGHTS).write_bytes(pack(weights))
        if folder is None:
            lines = [json.dumps(record.to_json()) + "\n" for record in records]
            (place / CONFIG).write_text(config.text(), encoding="utf-8")
            (place / METRICS).write_text("".join(lines), encoding="utf-8")
            (place / RESULT).write_text(json.dumps(result.to_json()), encoding="utf-8")
        yield [(folder or place) / name for name in (CONFIG, METRICS, RESULT)] + [place / WEIGHTS]
