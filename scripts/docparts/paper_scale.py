"""The papers' tables at their own scale: work and hours per table, and their commands.

The counts are in docs/paper-scale.json, written by `fedloom cost --paper-scale --json`. A test
(tests/inspect/test_paper_scale.py) compares them with the presets as they are.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from docparts.markdown import code, table
from fedloom.diagnostics.cost.gpu import (
    PEAK_TFLOPS,
    SUSTAINED_SHARE,
    sustained_flops,
    training_hours,
)
from fedloom.inspect.paper_scale import SEEDS

COUNTS = Path("docs") / "paper-scale.json"


def counts(root: Path) -> list[dict[str, Any]]:
    """What was counted, table by table."""
    counted: list[dict[str, Any]] = json.loads((root / COUNTS).read_text(encoding="utf-8"))
    return counted


def rates(root: Path) -> str:
    """The classes of GPU with the rates that the hours assume."""
    rows = [
        [f"`{gpu}`", f"{peak:g}", f"{sustained_flops(gpu) / 1e12:.2f}"]
        for gpu, peak in PEAK_TFLOPS.items()
    ]
    share = f"assumed sustained ({SUSTAINED_SHARE:.0%})"
    return table(["GPU", "peak TFLOP/s in float32", share], rows)


def work(root: Path) -> str:
    """Cells; runs, steps and MACs of a seed; hours of the command; with totals of papers."""
    counted = counts(root)
    papers = dict.fromkeys(w["table"].partition("/")[0] for w in counted)
    rows = []
    for paper in papers:
        of_paper = [w for w in counted if w["table"].startswith(f"{paper}/")]
        rows += [_row(w["table"], ", ".join(w["data"]), [w]) for w in of_paper]
        rows.append(_row(f"**{paper}, all**", "", of_paper))
    columns = ["table", "data", "cells", "runs", "steps", "MACs"]
    return table([*columns, *(f"hours of {SEEDS} seeds, {gpu}" for gpu in PEAK_TFLOPS)], rows)


def _row(name: str, data: str, counted: list[dict[str, Any]]) -> list[str]:
    cells, runs, steps, macs = (sum(w[key] for w in counted) for key in NUMBERS)
    estimates = [f"{_hours(counted, gpu):,.1f}" for gpu in PEAK_TFLOPS]
    return [name, data, str(cells), str(runs), f"{steps:,}", f"{macs:.2e}", *estimates]


def _hours(counted: list[dict[str, Any]], gpu: str) -> float:
    """Of the commands of these tables."""
    flops = sustained_flops(gpu)
    return SEEDS * sum(training_hours(w["macs"], w["steps"], flops) for w in counted)


NUMBERS = ("cells", "runs", "steps", "macs")


def commands(root: Path) -> str:
    """One command per table."""
    lines = "\n".join(w["command"] for w in counts(root))
    return f"<!-- not executed: days on a GPU, and the papers' data -->\n{code(lines, 'sh')}"
