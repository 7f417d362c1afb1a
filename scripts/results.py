"""Gather what a table of a paper came to: what `fedloom compare --json` printed, and what `fedloom analyze` found in its runs.

    python scripts/results.py COMPARE.json RUNS OUT.json

RUNS is the folder of the comparison. The pages under docs/results are written from OUT by scripts/docs.py.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any


def looked(path: Path) -> dict[str, float]:
    """The second-order indicators of a run, under the paper's names; H_N and H_D as the authors have them, a number a tensor."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    pairs = found["pairs"]
    return {
        "lambda_max": found["eigen"]["values"][0],
        "H_T": found["trace"]["hutch++"]["value"],
        "H_N": pairs["per_tensor"]["H_N"]["mean_over_matrix"],
        "H_D": pairs["per_tensor"]["H_D"]["mean_over_matrix"],
        "drift": statistics.fmean(c["distance_to_mean"] for c in found["drift"]["clients"]),
        "cosine": statistics.fmean(c["cosine_to_mean"] for c in found["drift"]["clients"]),
    }


def main(compared: str, runs: str, out: str) -> None:
    """Write both into one file."""
    table: dict[str, Any] = json.loads(Path(compared).read_text(encoding="utf-8"))
    for where in ("out", "picture"):
        table.pop(where, None)
    found: dict[str, list[dict[str, float]]] = {}
    for path in sorted(Path(runs).glob("*/*/seed-*/analysis/analysis.json")):
        found.setdefault(path.parents[3].name, []).append(looked(path))
    Path(out).write_text(
        json.dumps({**table, "analysis": found}, indent=1) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
