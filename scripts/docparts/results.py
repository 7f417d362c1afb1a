"""What the tables of papers came to at small scale, read from docs/results."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from docparts.markdown import table

INDICATORS = {
    "lambda_max": "largest eigenvalue",
    "H_T": "trace",
    "H_N": "H_N",
    "H_D": "H_D",
    "drift": "client drift",
    "cosine": "cosine",
}


def fedalign(root: Path) -> str:
    """Table 1: accuracy, and what the Hessian says."""
    found: dict[str, Any] = json.loads((root / "docs" / "results" / "fedalign-table1.json").read_text(encoding="utf-8"))
    rows = [f for f in found["figures"] if f["column"] == "accuracy"]
    first = rows[0]
    accuracy = table(
        ["method", "accuracy %", "by seed", "gain on FedAvg, seed by seed", "paper", "gain in the paper", "seconds a run"],
        [
            [
                f["row"],
                f"{f['mean']:.2f}",
                ", ".join(f"{y:.2f}" for y in f["ours"]),
                _spread([a - b for a, b in zip(f["ours"], first["ours"], strict=True)], "{:+.2f}"),
                f"{f['printed']['mean']:g}" if f["printed"] else "-",
                f"{f['printed']['mean'] - first['printed']['mean']:+.1f}" if f["printed"] else "-",
                f"{f['seconds']:.0f}",
            ]
            for f in rows
        ],
    )
    seen = found["analysis"]
    second = table(
        ["method", *INDICATORS.values()],
        [[name, *(_spread([s[what] for s in seen[name]], "{:.3g}") for what in INDICATORS)] for name in seen],
    )
    return f"{accuracy}\n\n{second}"


def _spread(values: Sequence[float], form: str) -> str:
    """Mean and, in brackets, the sample standard deviation over seeds, if there are several."""
    mean = form.format(statistics.fmean(values))
    return f"{mean} ({statistics.stdev(values):.2g})" if len(values) > 1 else mean
