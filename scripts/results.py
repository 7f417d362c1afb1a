"""Collect the results of a paper's table: the output of `fedloom reproduce --json` and the analyses
of its runs by `fedloom analyze`.

    python scripts/results.py REPRODUCED.json RUNS OUT.json

RUNS is the folder of the runs. scripts/docs.py writes the pages under docs/results from OUT.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any


def indicators(path: Path) -> dict[str, float]:
    """The second-order indicators of a run, under the paper's names.

    H_N and H_D are computed per tensor, as in the authors' code.
    """
    analysis: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    pairs, clients = analysis["pairs"], analysis["drift"]["clients"]
    return {
        "lambda_max": analysis["eigen"]["values"][0],
        "H_T": analysis["trace"]["hutch++"]["value"],
        "H_N": pairs["per_tensor"]["H_N"]["mean_over_matrix"],
        "H_D": pairs["per_tensor"]["H_D"]["mean_over_matrix"],
        "drift": statistics.fmean(c["distance_to_mean"] for c in clients),
        "cosine": statistics.fmean(c["cosine_to_mean"] for c in clients),
    }


def main(reproduced: str, runs: str, out: str) -> None:
    """Write both into one file."""
    table: dict[str, Any] = json.loads(Path(reproduced).read_text(encoding="utf-8"))
    for local_path in ("out", "picture"):
        table.pop(local_path, None)
    by_row: dict[str, list[dict[str, float]]] = {}
    for path in sorted(Path(runs).glob("*/*/seed-*/analysis/analysis.json")):
        by_row.setdefault(path.parents[3].name, []).append(indicators(path))
    text = json.dumps({**table, "analysis": by_row}, indent=1) + "\n"
    Path(out).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
