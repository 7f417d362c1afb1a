"""The report page as a file: what `fedloom report --html` and `Comparison.report` write."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedloom.experiment.stored_run import StoredRun
from fedloom.metrics.curve import CurveOptions
from fedloom.reports.by_method import by_method
from fedloom.reports.comparison import compare_runs
from fedloom.reports.page.page import render


def write_page(runs: Sequence[StoredRun], options: CurveOptions | None, path: Path) -> Path:
    """Write the page of these runs, a row per method over its seeds, and return its path."""
    text = render(compare_runs(by_method(runs), options))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
